narrowgauge_test(train/parts cpu narrowgauge_train)
narrowgauge_test(train/spill cpu narrowgauge_train)

# Whole runs in this process.
add_library(narrowgauge_test_runs STATIC train/runs.cpp train/rows.cpp)
narrowgauge_target(narrowgauge_test_runs)
target_compile_definitions(narrowgauge_test_runs PRIVATE NARROWGAUGE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
target_link_libraries(narrowgauge_test_runs PUBLIC narrowgauge_train Catch2::Catch2)

# Single steps.
add_library(narrowgauge_test_steps STATIC train/gradients.cpp train/bad_gradient.cpp)
narrowgauge_target(narrowgauge_test_steps)
target_link_libraries(narrowgauge_test_steps PUBLIC narrowgauge_train Catch2::Catch2)

narrowgauge_test(train/memory_test cpu narrowgauge_test_runs)
narrowgauge_test(train/step cpu narrowgauge_test_steps)
narrowgauge_test(train/states slow narrowgauge_test_runs)
narrowgauge_test(train/step_gpu gpu narrowgauge_test_steps narrowgauge_test_runs)
narrowgauge_test(train/states_gpu gpu narrowgauge_test_runs)
if(NARROWGAUGE_CUDA)
  narrowgauge_test(train/graphs_gpu gpu narrowgauge_test_steps narrowgauge_test_runs)
endif()

narrowgauge_test(train/checkpoint_test cpu narrowgauge_train)
