# Language level, build type, warnings, ccache and linker: what every target of ours shares.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# -g1 keeps function names and lines for the crash report (exit code 70) at a tenth of -g's size.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")

find_program(NARROWGAUGE_CCACHE ccache)
if(NARROWGAUGE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${NARROWGAUGE_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${NARROWGAUGE_CCACHE})
endif()
find_program(NARROWGAUGE_MOLD mold)
if(NARROWGAUGE_MOLD)
  add_link_options($<$<LINK_LANGUAGE:CXX>:-fuse-ld=mold>)
endif()

# narrowgauge_target(NAME): the flags of one of our own targets. Includes are written from the
# repository root ("lib/base/error.h", "cuda/rms_norm.h"), so that the rank test can read them.
function(narrowgauge_target name)
  target_include_directories(${name} PUBLIC "${CMAKE_SOURCE_DIR}")
  target_compile_options(${name} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wold-style-cast>)
  if(NARROWGAUGE_WERROR)
    target_compile_options(${name} PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:-Werror> $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
  endif()
endfunction()
