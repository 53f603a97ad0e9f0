# LibTorch as one imported target, narrowgauge_torch. find_package(Torch) is not used: it needs a
# CUDA toolkit even for a CPU build, rewrites CUDA flags and fails to configure under CMake 3.25
# without a GPU. LibTorch's root is the folder that holds share/cmake/Torch/TorchConfig.cmake.
find_path(NARROWGAUGE_TORCH_CMAKE_DIR TorchConfig.cmake
  PATH_SUFFIXES Torch share/cmake/Torch torch/share/cmake/Torch)
if(NOT NARROWGAUGE_TORCH_CMAKE_DIR)
  message(FATAL_ERROR "LibTorch was not found. Run ./dev build, which installs it, or set "
    "CMAKE_PREFIX_PATH to torch.utils.cmake_prefix_path of a torch 2.11.0.")
endif()
get_filename_component(NARROWGAUGE_TORCH_ROOT "${NARROWGAUGE_TORCH_CMAKE_DIR}/../../.." ABSOLUTE)
file(STRINGS "${NARROWGAUGE_TORCH_CMAKE_DIR}/TorchConfigVersion.cmake" _version REGEX "PACKAGE_VERSION \"")
if(NOT _version MATCHES "2\\.11\\.0")
  message(FATAL_ERROR "LibTorch in ${NARROWGAUGE_TORCH_ROOT} is not version 2.11.0 (${_version}). "
    "Run ./dev build, which installs that version.")
endif()

add_library(narrowgauge_torch INTERFACE)
target_include_directories(narrowgauge_torch SYSTEM INTERFACE
  "${NARROWGAUGE_TORCH_ROOT}/include" "${NARROWGAUGE_TORCH_ROOT}/include/torch/csrc/api/include")
target_link_directories(narrowgauge_torch INTERFACE "${NARROWGAUGE_TORCH_ROOT}/lib")
target_link_libraries(narrowgauge_torch INTERFACE torch_cpu c10)
# Without it at::parallel_for, a template, runs on one thread. The library is the one that LibTorch loads.
target_compile_options(narrowgauge_torch INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fopenmp>)
target_link_options(narrowgauge_torch INTERFACE -fopenmp)
# Libraries that LibTorch itself needs (cuDNN, NCCL, ...) are found through its own run path.
target_link_options(narrowgauge_torch INTERFACE -Wl,--allow-shlib-undefined
  "-Wl,-rpath,${NARROWGAUGE_TORCH_ROOT}/lib")
if(NARROWGAUGE_CUDA)
  if(NOT EXISTS "${NARROWGAUGE_TORCH_ROOT}/lib/libtorch_cuda.so")
    message(FATAL_ERROR "LibTorch in ${NARROWGAUGE_TORCH_ROOT} has no CUDA half. "
      "Configure with -DNARROWGAUGE_CUDA=OFF, or install the CUDA 13 build of torch 2.11.0.")
  endif()
  # Registration happens in static initialisers, so the linker must not drop the library.
  target_link_options(narrowgauge_torch INTERFACE
    "-Wl,--push-state,--no-as-needed,-ltorch_cuda,-lc10_cuda,--pop-state")
  target_include_directories(narrowgauge_torch SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
endif()
