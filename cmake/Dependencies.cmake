# The libraries that come from the system's packages. A missing one is named with its remedy;
# nothing is downloaded here (./dev installs what is missing).
function(narrowgauge_require target package)
  if(NOT TARGET ${target})
    message(FATAL_ERROR "${target} was not found. Install it: sudo apt-get install ${package} "
                        "(or run ./dev build, which installs all of them).")
  endif()
endfunction()

find_package(Threads REQUIRED)
find_package(fmt QUIET)
narrowgauge_require(fmt::fmt-header-only libfmt-dev)

find_package(cxxopts QUIET)
narrowgauge_require(cxxopts::cxxopts libcxxopts-dev)

find_package(nlohmann_json QUIET)
narrowgauge_require(nlohmann_json::nlohmann_json nlohmann-json3-dev)

# The target is called yaml-cpp up to 0.7 and yaml-cpp::yaml-cpp from 0.8 on. We link the static
# archive, so that a program built on one distribution runs on the other.
find_package(yaml-cpp QUIET)
find_library(NARROWGAUGE_YAML_ARCHIVE libyaml-cpp.a)
find_path(NARROWGAUGE_YAML_INCLUDE yaml-cpp/yaml.h)
if(NARROWGAUGE_YAML_ARCHIVE AND NARROWGAUGE_YAML_INCLUDE)
  add_library(narrowgauge_yaml STATIC IMPORTED)
  set_target_properties(narrowgauge_yaml PROPERTIES IMPORTED_LOCATION "${NARROWGAUGE_YAML_ARCHIVE}"
    INTERFACE_INCLUDE_DIRECTORIES "${NARROWGAUGE_YAML_INCLUDE}")
elseif(TARGET yaml-cpp::yaml-cpp)
  add_library(narrowgauge_yaml ALIAS yaml-cpp::yaml-cpp)
elseif(TARGET yaml-cpp)
  add_library(narrowgauge_yaml ALIAS yaml-cpp)
endif()
narrowgauge_require(narrowgauge_yaml libyaml-cpp-dev)

# xxhash is used header-only (XXH_INLINE_ALL): no library to carry.
find_path(NARROWGAUGE_XXHASH_INCLUDE xxhash.h)
if(NARROWGAUGE_XXHASH_INCLUDE)
  add_library(narrowgauge_xxhash INTERFACE)
  target_include_directories(narrowgauge_xxhash SYSTEM INTERFACE "${NARROWGAUGE_XXHASH_INCLUDE}")
  target_compile_definitions(narrowgauge_xxhash INTERFACE XXH_INLINE_ALL)
endif()
narrowgauge_require(narrowgauge_xxhash libxxhash-dev)

find_library(NARROWGAUGE_SENTENCEPIECE sentencepiece)
find_library(NARROWGAUGE_SENTENCEPIECE_TRAIN sentencepiece_train)
find_path(NARROWGAUGE_SENTENCEPIECE_INCLUDE sentencepiece_processor.h)
if(NARROWGAUGE_SENTENCEPIECE AND NARROWGAUGE_SENTENCEPIECE_TRAIN AND NARROWGAUGE_SENTENCEPIECE_INCLUDE)
  add_library(narrowgauge_sentencepiece INTERFACE)
  target_link_libraries(narrowgauge_sentencepiece INTERFACE
    "${NARROWGAUGE_SENTENCEPIECE}" "${NARROWGAUGE_SENTENCEPIECE_TRAIN}")
  target_include_directories(narrowgauge_sentencepiece SYSTEM INTERFACE
    "${NARROWGAUGE_SENTENCEPIECE_INCLUDE}")
endif()
narrowgauge_require(narrowgauge_sentencepiece libsentencepiece-dev)
