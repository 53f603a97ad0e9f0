#include "lib/ops/attention_choice.h"

#include <nlohmann/json.hpp>

#include "lib/ops/attention_cudnn.h"
#include "lib/ops/choices.h"
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

TEST_CASE("boundaries have room for documents of 512 tokens") {
  CHECK(ops::usual_boundaries(1, 4096) == 16);  // 8 documents and the end
  CHECK(ops::usual_boundaries(2, 4096) == 32);
  CHECK(ops::usual_boundaries(16, 100) == 32);
  CHECK(ops::usual_boundaries(15, 512) == 16);
}

TEST_CASE("scratch of attention is cudnn's alone") {
  const ops::Attention attention{.shape = shape_of(1, 64, 4, 2, 16), .kernel = AttentionKernel::flash};
  CHECK(ops::attention_scratch(attention, kCpu).forward == 0);
  CHECK(ops::attention_scratch(attention, kCpu).backward == 0);
}

#if NARROWGAUGE_CUDA
TEST_CASE("cudnn without a plan that can be trusted is refused, and flash taken") {
  const auto answer = ops::detail::cudnn_answer({});
  CHECK(answer ==
        nlohmann::json{{"refused", "no plan of its forward pass gives results that can be trusted"}});
  CHECK_FALSE(ops::detail::cudnn_refused({{"forward", "eng1"}}));
  const ops::AttentionJob job{.device = at::Device(at::kCUDA, 0),
                              .dtype = at::kBFloat16,
                              .shape = shape_of(1, 4096, 16, 16, 112),
                              .deterministic = true};
  const ops::CudnnJob plans{.shape = job.shape,
                            .device = job.device,
                            .deterministic = true,
                            .workspace_limit = job.workspace_limit};
  ops::choices().clear();
  ops::choices().load_json({{ops::detail::cudnn_setup_key(plans), answer}});
  CHECK(ops::choose_attention("auto", job).kernel == AttentionKernel::flash);
  CHECK_THROWS_WITH(ops::choose_attention("cudnn", job),
                    "cudnn attention cannot be used here: cuDNN refuses it with a deterministic backward "
                    "pass: no plan of its forward pass gives results that can be trusted");
  ops::choices().clear();
}
#endif

}  // namespace
}  // namespace narrowgauge::test
