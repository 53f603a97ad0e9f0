add_library(narrowgauge_test_ops STATIC support/close.cpp support/reference.cpp
  ops/rms_norm_checks.cpp ops/rope_checks.cpp ops/swiglu_checks.cpp)
narrowgauge_target(narrowgauge_test_ops)
target_link_libraries(narrowgauge_test_ops PUBLIC narrowgauge_ops Catch2::Catch2)

narrowgauge_test(ops/elementwise_test cpu narrowgauge_test_ops)
if(NARROWGAUGE_CUDA)
  narrowgauge_test(ops/elementwise_gpu_test gpu narrowgauge_test_ops)
endif()

narrowgauge_test(ops/choices_test cpu narrowgauge_ops)
narrowgauge_test(ops/loss_test cpu narrowgauge_test_ops)
narrowgauge_test(ops/attention_test cpu narrowgauge_test_ops)
if(NARROWGAUGE_CUDA)
  narrowgauge_test(ops/loss_gpu_test gpu narrowgauge_test_ops)
  narrowgauge_test(ops/attention_gpu_test gpu narrowgauge_test_ops)
  narrowgauge_test(ops/attention_cudnn_gpu_test gpu narrowgauge_test_ops)
  narrowgauge_test(ops/gemm_gpu_test gpu narrowgauge_test_ops)
endif()
