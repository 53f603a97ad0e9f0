# The cases run on the CPU and on the GPU alike; the programs only choose the device.
add_library(narrowgauge_model_cases STATIC
  model/reference_model.cpp model/support.cpp model/training_cases.cpp)
narrowgauge_target(narrowgauge_model_cases)
target_link_libraries(narrowgauge_model_cases PUBLIC narrowgauge_model Catch2::Catch2)
add_library(narrowgauge_golden_cases STATIC model/golden_cases.cpp)
narrowgauge_target(narrowgauge_golden_cases)
target_link_libraries(narrowgauge_golden_cases PUBLIC narrowgauge_model_cases narrowgauge_io narrowgauge_test_golden)

narrowgauge_test(model/model_test cpu narrowgauge_model_cases)
narrowgauge_test(model/generate_test cpu narrowgauge_model_cases)
narrowgauge_test(model/golden_test cpu narrowgauge_golden_cases)
narrowgauge_test(model/gpu_model_test gpu narrowgauge_model_cases)
narrowgauge_test(model/gpu_golden_test gpu narrowgauge_golden_cases)
