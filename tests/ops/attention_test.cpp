#include "lib/ops/attention_choice.h"
#include "tests/ops/attention_cases.h"

namespace narrowgauge::test {
namespace {

using ops::AttentionKernel;
const at::Device kCpu{at::kCPU};

TEST_CASE("attention on the CPU equals fp64") {
  for (const auto kernel : {AttentionKernel::flash, AttentionKernel::math}) {
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      for (const int64_t context : {1, 63, 64, 127, 192}) {
        check_attention(kCpu, dtype, shape_of(2, context, 4, 2, 16), kernel);
      }
      check_attention(kCpu, dtype, shape_of(1, 130, 2, 2, 112), kernel);
      check_attention(kCpu, dtype, shape_of(1, 50, 3, 1, 10), kernel);
      check_attention(kCpu, dtype, shape_of(2, 100, 4, 2, 16), kernel, layout_of({1, 40, 59, 100}, 9, kCpu));
      check_expanded_gradient(kCpu, dtype, kernel);
      check_no_leak(kCpu, dtype, kernel);
      check_documents_alone(kCpu, dtype, kernel);
    }
    const auto empty = shape_of(0, 16, 2, 1, 8);
    CHECK(run_attention(at::empty({0, 32}), at::empty({0, 16}), empty, kernel).out.size(0) == 0);
  }
}

TEST_CASE("math attention in several blocks of query rows") {
  // 4 heads of 1700 rows: more scores than are allowed at once.
  check_attention(kCpu, at::kFloat, shape_of(1, 1700, 4, 2, 8), AttentionKernel::math);
}

TEST_CASE("the attention kernel is chosen by what it can do") {
  const auto s = shape_of(1, 64, 4, 2, 16);
  const ops::AttentionJob job{
      .device = kCpu, .dtype = at::kFloat, .shape = s, .deterministic = true, .document_mask = true};
  const auto choose = [&](const char* request) { return ops::choose_attention(request, job).kernel; };
  CHECK(choose("auto") == AttentionKernel::flash);
  CHECK(choose("flash") == AttentionKernel::flash);
  CHECK(choose("math") == AttentionKernel::math);
  CHECK_THROWS_WITH(choose("cudnn"), "cudnn attention cannot be used here: it needs a CUDA device");
  CHECK_THROWS_AS(choose("fast"), std::invalid_argument);
  CHECK(ops::usable_kernel(AttentionKernel::cudnn, job) == AttentionKernel::flash);
  CHECK(ops::usable_kernel(AttentionKernel::math, job) == AttentionKernel::math);
  const ops::AttentionChoice timed{.kernel = AttentionKernel::cudnn,
                                   .times = {{AttentionKernel::cudnn, 0.614}, {AttentionKernel::flash, 1.2}}};
  CHECK(ops::describe(timed) == "cudnn (0.61 ms a layer and micro-batch, flash 1.20 ms)");
  CHECK(ops::describe({.kernel = AttentionKernel::math, .times = {}}) == "math");
  const at::Tensor dout = at::zeros({64, 64});
  CHECK_THROWS_AS(run_attention(at::zeros({64, 100}), dout, s, AttentionKernel::math), c10::Error);
  const auto layout = layout_of({64}, 2, kCpu);
  CHECK_THROWS_AS(run_attention(at::zeros({64, 128}), dout, s, AttentionKernel::cudnn, layout.documents),
                  std::invalid_argument);
}

}  // namespace
}  // namespace narrowgauge::test
