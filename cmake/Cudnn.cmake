# The headers of cuDNN and of its graph API, as one interface target, narrowgauge_cudnn. Nothing is linked: the
# library is LibTorch's own copy, which is looked up in the process.
get_filename_component(_packages "${NARROWGAUGE_TORCH_ROOT}/.." ABSOLUTE)
find_path(NARROWGAUGE_CUDNN_INCLUDE cudnn.h HINTS "${_packages}/nvidia/cudnn/include")
if(NOT NARROWGAUGE_CUDNN_INCLUDE)
  message(FATAL_ERROR "cudnn.h was not found beside LibTorch (${_packages}/nvidia/cudnn/include). Install it: "
    "pip install nvidia-cudnn-cu13==9.19.0.56 (or run ./dev build), or set NARROWGAUGE_CUDNN_INCLUDE.")
endif()
find_path(NARROWGAUGE_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h HINTS "${_packages}/include")
if(NOT NARROWGAUGE_CUDNN_FRONTEND_INCLUDE)
  message(FATAL_ERROR "cudnn_frontend.h was not found (${_packages}/include). Install it: "
    "pip install --no-deps nvidia-cudnn-frontend==1.32.0 (or run ./dev build), or set "
    "NARROWGAUGE_CUDNN_FRONTEND_INCLUDE.")
endif()
add_library(narrowgauge_cudnn INTERFACE)
target_include_directories(narrowgauge_cudnn SYSTEM INTERFACE
  "${NARROWGAUGE_CUDNN_INCLUDE}" "${NARROWGAUGE_CUDNN_FRONTEND_INCLUDE}")
target_link_libraries(narrowgauge_cudnn INTERFACE ${CMAKE_DL_LIBS})
