# The cases run on the CPU and on the GPU alike; the programs only choose the device.
add_library(narrowgauge_model_cases STATIC
  model/reference_model.cpp model/support.cpp model/training_cases.cpp model/golden_cases.cpp)
narrowgauge_target(narrowgauge_model_cases)
target_compile_definitions(narrowgauge_model_cases PRIVATE NARROWGAUGE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
target_link_libraries(narrowgauge_model_cases PUBLIC narrowgauge_model narrowgauge_io Catch2::Catch2)

narrowgauge_test(model/model_test cpu narrowgauge_model_cases)
narrowgauge_test(model/generate_test cpu narrowgauge_model_cases)
narrowgauge_test(model/gpu_model_test gpu narrowgauge_model_cases)
