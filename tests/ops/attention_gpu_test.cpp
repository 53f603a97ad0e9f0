#include <ATen/Context.h>

#include "lib/ops/attention_choice.h"
#include "lib/ops/choices.h"
#include "tests/ops/attention_cases.h"

namespace narrowgauge::test {
namespace {

using ops::AttentionKernel;
const at::Device kGpu{at::kCUDA, 0};
const auto kBf16 = at::kBFloat16;

TEST_CASE("attention in bf16 on CUDA equals fp64") {
  for (const auto kernel : {AttentionKernel::flash, AttentionKernel::cudnn, AttentionKernel::math}) {
    for (const int64_t head_dim : {16, 64, 112, 128}) {
      for (const int64_t context : {1, 63, 64, 127, 128, 192, 1000, 4096}) {
        if (kernel == AttentionKernel::cudnn && context == 1) continue;  // refused by choose_attention
        const int64_t batch = context > 1000 ? 1 : 2;
        check_attention(kGpu, kBf16, shape_of(batch, context, 2, 2, head_dim), kernel);
      }
      check_attention(kGpu, kBf16, shape_of(2, 192, 8, 2, head_dim), kernel);
    }
    check_attention(kGpu, kBf16, shape_of(1, 320, 16, 16, 112), kernel);
    check_expanded_gradient(kGpu, kBf16, kernel);
  }
}

TEST_CASE("attention in fp32 on CUDA equals fp64") {
  for (const int64_t context : {1, 63, 128, 1000}) {
    check_attention(kGpu, at::kFloat, shape_of(2, context, 4, 2, 112), AttentionKernel::math);
  }
  check_attention(kGpu, at::kFloat, shape_of(1, 4096, 4, 2, 10), AttentionKernel::math);
  check_expanded_gradient(kGpu, at::kFloat, AttentionKernel::math);
}

TEST_CASE("document masks on CUDA") {
  for (const auto kernel : {AttentionKernel::flash, AttentionKernel::math}) {
    for (const int64_t head_dim : {16, 112}) {
      const auto layout = layout_of({1, 40, 59, 64, 36}, 9, kGpu);
      check_attention(kGpu, kBf16, shape_of(2, 100, 4, 2, head_dim), kernel, layout);
      check_attention(kGpu, kBf16, shape_of(2, 100, 2, 2, head_dim), kernel, layout);
    }
    check_attention(kGpu, kBf16, shape_of(3, 1, 4, 2, 16), kernel, layout_of({1, 1, 1}, 6, kGpu));
    check_no_leak(kGpu, kBf16, AttentionKernel::math);
    check_documents_alone(kGpu, kBf16, kernel);
  }
  check_no_leak(kGpu, at::kFloat, AttentionKernel::math);
  check_documents_alone(kGpu, at::kFloat, AttentionKernel::math);
}

// Flash adds dq with atomics unless deterministic algorithms are on; forward never does.
TEST_CASE("attention twice gives the same bits") {
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  check_no_leak(kGpu, kBf16, AttentionKernel::flash);
  const auto s = shape_of(2, 1000, 4, 2, 112);
  const auto layout = layout_of({300, 700, 1, 999}, 9, kGpu);
  Draws random(8, kGpu);
  const at::Tensor qkv = random.normal({2000, packed_width(s)}, kBf16);
  const at::Tensor dout = random.normal({2000, 448}, kBf16);
  for (const auto& documents : {ops::Documents{}, layout.documents}) {
    const auto first = run_attention(qkv, dout, s, AttentionKernel::flash, documents);
    for (int i = 0; i < 5; ++i) {
      const auto again = run_attention(qkv, dout, s, AttentionKernel::flash, documents);
      CHECK(same_bits(first.out, again.out));
      CHECK(same_bits(first.dqkv, again.dqkv));
    }
  }
  at::globalContext().setDeterministicAlgorithms(false, false);
  const auto first = run_attention(qkv, dout, s, AttentionKernel::math, layout.documents);
  CHECK(same_bits(first.dqkv, run_attention(qkv, dout, s, AttentionKernel::math, layout.documents).dqkv));
}

TEST_CASE("the attention kernel is chosen by what it can do on CUDA") {
  auto s = shape_of(1, 4096, 16, 16, 112);
  const auto choose = [&](const char* request, at::ScalarType dtype, bool deterministic, bool documents) {
    const ops::AttentionJob job{.device = kGpu,
                                .dtype = dtype,
                                .shape = s,
                                .deterministic = deterministic,
                                .document_mask = documents};
    return ops::choose_attention(request, job).kernel;
  };
  CHECK(choose("auto", kBf16, false, true) == AttentionKernel::flash);
  CHECK(choose("auto", at::kFloat, true, true) == AttentionKernel::math);
  CHECK(choose("cudnn", kBf16, false, false) == AttentionKernel::cudnn);
  CHECK_THROWS_WITH(choose("cudnn", kBf16, false, true),
                    "cudnn attention cannot be used here: it has no document mask");
  CHECK_THROWS_AS(choose("cudnn", at::kFloat, false, false), std::invalid_argument);
  CHECK_THROWS_AS(choose("flash", at::kFloat, false, false), std::invalid_argument);
  s.head_dim = 10;
  CHECK(choose("auto", kBf16, false, false) == AttentionKernel::math);
  s.head_dim = 192;
  CHECK(choose("auto", kBf16, false, false) == AttentionKernel::flash);
  s.head_dim = 112;
  s.context = 1;
  CHECK(choose("auto", kBf16, false, false) == AttentionKernel::flash);
}

TEST_CASE("attention is not timed for a model that is only run") {
  ops::AttentionJob job{
      .device = kGpu, .dtype = kBf16, .shape = shape_of(2, 384, 8, 2, 112), .timing = false};
  ops::choices().clear();
  CHECK(ops::choose_attention("auto", job).kernel == AttentionKernel::flash);
  CHECK(ops::choices().to_json().empty());
  job.timing = true;
  const ops::AttentionChoice timed = ops::choose_attention("auto", job);
  const nlohmann::json found = ops::choices().to_json();
  job.timing = false;
  for (const bool in_force : {true, false}) {  // of a checkpoint, or of the disk cache
    ops::choices().clear();
    in_force ? ops::choices().load_json(found) : ops::choices().remember_json(found);
    CHECK(ops::choose_attention("auto", job).kernel == timed.kernel);
    CHECK(ops::choices().to_json() == found);
    CHECK(ops::choices().news().empty());
  }
  ops::choices().clear();
}

TEST_CASE("the time of attention behind a document mask is taken once") {
  const ops::AttentionJob job{
      .device = kGpu, .dtype = kBf16, .shape = shape_of(2, 512, 8, 2, 112), .document_mask = true};
  ops::choices().clear();
  const double first = ops::attention_milliseconds("auto", job);
  CHECK(first > 0);
  const nlohmann::json stored = ops::choices().to_json();
  REQUIRE(stored.size() == 1);
  CHECK(stored.begin().key().starts_with("attention time flash documents B2 T512"));
  CHECK(ops::attention_milliseconds("auto", job) == first);
  ops::choices().clear();
  ops::choices().remember_json(stored);
  CHECK(ops::attention_milliseconds("auto", job) == first);
  ops::choices().clear();
}

// Where both can do the job, time decides, once.
TEST_CASE("the attention kernel is chosen by timing") {
  const auto s = shape_of(2, 512, 8, 2, 112);
  for (const bool deterministic : {false, true}) {
    at::globalContext().setDeterministicAlgorithms(deterministic, /*warn_only=*/false);
    at::globalContext().setDeterministicFillUninitializedMemory(false);
    const auto choose = [&] {
      return ops::choose_attention(
          "auto", {.device = kGpu, .dtype = kBf16, .shape = s, .deterministic = deterministic});
    };
    ops::choices().clear();
    const ops::AttentionChoice first = choose();
    UNSCOPED_INFO(ops::describe(first));
    if (first.times.empty()) {
      CHECK(first.kernel == AttentionKernel::flash);
      WARN("cuDNN refuses this, deterministic " << deterministic);
      continue;
    }
    REQUIRE(first.times.size() == 2);
    CHECK(first.kernel == first.times[0].kernel);
    CHECK(first.times[0].milliseconds > 0);
    CHECK(first.times[0].milliseconds <= first.times[1].milliseconds);
    nlohmann::json stored = ops::choices().to_json();
    REQUIRE(stored.size() == 2);                                           // the kernel, then cudnn's plans
    CHECK(choose().times[1].milliseconds == first.times[1].milliseconds);  // not timed again

    const char* slower = ops::attention_kernel_name(first.times[1].kernel);
    stored.begin().value()["kernel"] = slower;
    ops::choices().clear();
    ops::choices().remember_json(stored);
    CHECK(choose().kernel == first.times[1].kernel);
    CHECK(ops::choices().to_json() == stored);  // now in force

    stored.begin().value()["kernel"] = "slide rule";
    ops::choices().load_json(stored);
    CHECK_NOTHROW(choose());
  }
  ops::choices().clear();
  at::globalContext().setDeterministicAlgorithms(false, false);
}

}  // namespace
}  // namespace narrowgauge::test
