narrowgauge_test(cuda/launch_test cpu narrowgauge_cuda)
if(NARROWGAUGE_CUDA)
  narrowgauge_test(cuda/scale_test gpu narrowgauge_cuda)
  add_test(NAME cuda/resources
    COMMAND bash "${CMAKE_CURRENT_SOURCE_DIR}/cuda/resources.sh" $<TARGET_FILE:narrowgauge_cuda>)
  set_tests_properties(cuda/resources PROPERTIES LABELS cpu SKIP_RETURN_CODE 77)
endif()
