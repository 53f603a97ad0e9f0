// cuDNN's graph API: exactness, determinism, groups, plans, capture.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <limits>

#include "lib/ops/attention_choice.h"
#include "lib/ops/attention_cudnn.h"
#include "lib/ops/attention_kernels.h"
#include "lib/ops/choices.h"
#include "tests/ops/attention_cases.h"

namespace narrowgauge::test {
namespace {

using ops::AttentionKernel;
using ops::AttentionShape;
namespace detail = ops::detail;

const at::Device kGpu{at::kCUDA, 0};
const auto kBf16 = at::kBFloat16;

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

ops::CudnnJob job_of(const AttentionShape& s, bool deterministic, int64_t limit = ops::kAttentionWorkspace) {
  return {.shape = s, .device = kGpu, .deterministic = deterministic, .workspace_limit = limit};
}

// A device without a deterministic backward says so once a shape.
bool refused(const AttentionShape& s, bool deterministic) {
  const std::string why = ops::cudnn_refusal(job_of(s, deterministic));
  if (!why.empty()) WARN("context " << s.context << " head_dim " << s.head_dim << ": " << why);
  if (!deterministic) CHECK(why.empty());
  return !why.empty();
}

// One micro-batch with everything in place, so that running it allocates nothing.
struct Case {
  AttentionShape shape;
  bool deterministic;
  at::Tensor qkv;
  at::Tensor dout;
  at::Tensor dqkv;
  at::Tensor scratch;
  ops::AttentionResult forward;

  Case(const AttentionShape& s, bool det) : shape(s), deterministic(det) {
    Draws random(static_cast<uint64_t>(s.context), kGpu);
    const int64_t tokens = s.batch * s.context;
    qkv = random.normal({tokens, packed_width(s)}, kBf16);
    dout = random.normal({tokens, s.heads * s.head_dim}, kBf16);
    dqkv = at::full(qkv.sizes(), kNan, qkv.options());
    forward = {.out = at::full(dout.sizes(), kNan, qkv.options()),
               .lse = at::full({tokens * s.heads}, kNan, qkv.options().dtype(at::kFloat))};
    scratch = at::empty({ops::attention_scratch_bytes(attention(), kGpu)}, qkv.options().dtype(at::kByte));
  }
  ops::Attention attention() const {
    return {
        .shape = shape, .kernel = AttentionKernel::cudnn, .deterministic = deterministic, .documents = {}};
  }
  void run() const {
    ops::attention_forward(forward, qkv, attention(), scratch);
    ops::attention_backward(dqkv, dout, qkv, forward, attention(), scratch);
  }
  void forget() const {
    for (const at::Tensor& t : {dqkv, forward.out, forward.lse}) t.fill_(kNan);
  }
};

TEST_CASE("cudnn attention equals fp64 with either backward") {
  for (const bool deterministic : {false, true}) {
    for (const int64_t context : {64, 128, 192, 1000, 4096}) {
      for (const int64_t head_dim : {64, 112, 128}) {
        for (const int64_t batch : {1, 2, 3}) {
          if (context > 1000 && batch > 1) continue;
          const auto s = shape_of(batch, context, 8, 2, head_dim);
          if (refused(s, deterministic)) continue;
          check_attention(kGpu, kBf16, s, AttentionKernel::cudnn, {}, deterministic);
        }
      }
    }
    for (const int64_t context : {2, 5, 33}) {
      const auto s = shape_of(2, context, 4, 2, 112);
      if (!refused(s, deterministic))
        check_attention(kGpu, kBf16, s, AttentionKernel::cudnn, {}, deterministic);
    }
  }
}

// The gradient by a setup, after its forward.
at::Tensor gradient(const Case& c, const ops::CudnnSetup& setup) {
  const at::Tensor dqkv = at::full(c.qkv.sizes(), kNan, c.qkv.options());
  const at::Tensor scratch = at::empty({setup.scratch_bytes()}, c.qkv.options().dtype(at::kByte));
  detail::cudnn_forward(setup, c.forward, c.qkv, c.shape, scratch);
  detail::cudnn_backward(setup, {.dqkv = dqkv, .dout = c.dout, .qkv = c.qkv, .forward = c.forward}, c.shape,
                         scratch);
  return dqkv;
}

void check_setup(const Case& c, const ops::CudnnSetup& setup, const at::Tensor& wanted) {
  INFO("context " << c.shape.context << " batch " << setup.group.batch << " heads " << setup.group.heads
                  << " by " << setup.forward.name() << ", " << setup.backward.name());
  const at::Tensor first = gradient(c, setup);
  CHECK(first.isfinite().all().item<bool>());
  CHECK(relative_error(first, wanted) < 1e-2);
  if (!c.deterministic) return;
  for (int i = 0; i < 3; ++i) CHECK(same_bits(first, gradient(c, setup)));
}

TEST_CASE("cudnn's backward in groups") {
  for (const auto& s : {shape_of(2, 192, 8, 2, 112), shape_of(2, 512, 8, 2, 112),
                        shape_of(2, 1000, 8, 2, 112), shape_of(1, 4096, 16, 16, 112)}) {
    if (refused(s, true)) continue;
    const auto groups = detail::cudnn_candidates(job_of(s, true, kNoLimit), 100);
    CHECK(groups.size() == (s.batch == 2 ? 3 : 5));  // 2 x 8, 1 x 8, 1 x 4 heads; 16, 8, 4, 2, 1
    CHECK(groups.front().group == s);
    const Case c(s, true);
    Case plain(s, false);
    plain.run();
    for (const ops::CudnnSetup& setup : groups) {
      CHECK(setup.group.heads * s.kv_heads == setup.group.kv_heads * s.heads);
      check_setup(c, setup, plain.dqkv);
      // A limit gives the largest group that keeps to it.
      const int64_t bytes = setup.backward.workspace_bytes();
      const AttentionShape at_limit = ops::cudnn_setup(job_of(s, true, bytes)).group;
      CHECK(at_limit.batch * at_limit.heads >= setup.group.batch * setup.group.heads);
      const AttentionShape below = ops::cudnn_setup(job_of(s, true, bytes - 1)).group;
      const bool smallest = setup.group == groups.back().group;
      CHECK((smallest || below.batch * below.heads < at_limit.batch * at_limit.heads));
    }
    CHECK(ops::cudnn_setup(job_of(s, true, 0)).group == groups.back().group);
  }
}

TEST_CASE("every plan of cudnn's that is tried gives the right bits, and the fastest is kept") {
  for (const bool deterministic : {false, true}) {
    for (const auto& s : {shape_of(2, 1000, 8, 2, 112), shape_of(1, 4096, 16, 16, 112)}) {
      if (refused(s, deterministic)) continue;
      const ops::CudnnJob job = job_of(s, deterministic);
      const ops::CudnnTrials trials = ops::try_cudnn(job);
      CHECK(!trials.groups.empty());
      CHECK(!trials.forward.empty());
      CHECK(!trials.backward.empty());
      const Case c(s, deterministic);
      const at::Tensor wanted = gradient(c, ops::cudnn_setup(job));
      for (const auto* list : {&trials.groups, &trials.forward, &trials.backward}) {
        for (const ops::CudnnTrial& trial : *list) {
          CHECK(trial.milliseconds > 0);
          check_setup(c, trial.setup, wanted);
        }
      }

      ops::choices().clear();
      ops::tune_cudnn(job, /*timing=*/true);
      const nlohmann::json tuned = ops::choices().to_json();
      REQUIRE(tuned.size() == 1);
      const ops::CudnnSetup& setup = ops::cudnn_setup(job);
      CHECK(tuned.begin().value()["backward"] == setup.backward.name());
      check_setup(c, setup, wanted);

      // Another choice in force takes effect, is not tuned again, and a useless one does no harm.
      const ops::CudnnTrial& other = trials.backward.back();
      nlohmann::json changed = tuned;
      changed.begin().value()["backward"] = other.setup.backward.name();
      changed.begin().value()["heads"] = other.setup.group.heads;
      changed.begin().value()["batch"] = other.setup.group.batch;
      ops::choices().load_json(changed);
      ops::tune_cudnn(job, /*timing=*/true);
      CHECK(ops::cudnn_setup(job).backward.name() == other.setup.backward.name());
      changed.begin().value()["backward"] = "slide rule";
      ops::choices().load_json(changed);
      CHECK_NOTHROW(ops::cudnn_setup(job));
      ops::choices().clear();
    }
  }
}

TEST_CASE("cudnn's deterministic workspace is bounded at the sizes that matter") {
  for (const auto& s :
       {shape_of(1, 4096, 16, 16, 112), shape_of(2, 4096, 16, 16, 112), shape_of(1, 8192, 16, 16, 112),
        shape_of(4, 1024, 16, 16, 112), shape_of(1, 4096, 32, 8, 128)}) {
    for (const bool deterministic : {false, true}) {
      if (refused(s, deterministic)) continue;
      const ops::CudnnSetup& setup = ops::cudnn_setup(job_of(s, deterministic));
      WARN("B " << s.batch << " T " << s.context << " Hq " << s.heads << " deterministic " << deterministic
                << ": " << (setup.scratch_bytes() >> 20) << " MiB, groups of B " << setup.group.batch
                << " Hq " << setup.group.heads);
      CHECK(setup.scratch_bytes() <= ops::kAttentionWorkspace);
    }
  }
}

TEST_CASE("a shape that cudnn cannot do runs by another kernel") {
  for (const bool deterministic : {false, true}) {
    ops::AttentionJob job{
        .device = kGpu, .dtype = kBf16, .shape = shape_of(1, 1, 8, 2, 112), .deterministic = deterministic};
    CHECK(ops::usable_kernel(AttentionKernel::cudnn, job) == AttentionKernel::flash);
    job.shape.head_dim = 10;
    CHECK(ops::usable_kernel(AttentionKernel::cudnn, job) == AttentionKernel::math);
    for (const int64_t context : {1, 2, 3, 7, 65, 130, 1023}) {
      const auto s = shape_of(3, context, 8, 2, 112);
      job.shape = s;
      const AttentionKernel kernel = ops::usable_kernel(AttentionKernel::cudnn, job);
      check_attention(kGpu, kBf16, s, kernel, {}, deterministic && kernel == AttentionKernel::cudnn);
    }
  }
}

TEST_CASE("cudnn's two backwards agree and the deterministic one repeats itself at full size") {
  const auto s = shape_of(1, 4096, 16, 16, 112);
  const Case plain(s, false);
  plain.run();
  if (refused(s, true)) return;
  const Case exact(s, true);
  exact.run();
  CHECK(same_bits(plain.forward.out, exact.forward.out));
  CHECK(relative_error(exact.dqkv, plain.dqkv) < 1e-2);
  const at::Tensor first = exact.dqkv.clone();
  for (int i = 0; i < 5; ++i) {
    exact.forget();
    exact.run();
    CHECK(same_bits(first, exact.dqkv));
  }
}

TEST_CASE("cudnn attention captured into a CUDA graph equals eager") {
  for (const bool deterministic : {false, true}) {
    for (const auto& s : {shape_of(2, 1000, 8, 2, 112), shape_of(1, 4096, 16, 16, 112)}) {
      if (refused(s, deterministic)) continue;
      const Case c(s, deterministic);
      c.run();
      const at::Tensor out = c.forward.out.clone();
      const at::Tensor dqkv = c.dqkv.clone();

      const auto allocations = [] {
        using Stat = c10::CachingAllocator::StatType;
        const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(kGpu.index());
        return stats.allocation[static_cast<size_t>(Stat::AGGREGATE)].allocated;
      };
      const auto before = allocations();
      c.run();
      CHECK(allocations() == before);

      c.forget();
      c10::cuda::getCurrentCUDAStream().synchronize();
      at::cuda::CUDAGraph graph;
      {
        const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
        graph.capture_begin();
        c.run();
        graph.capture_end();
        for (int i = 0; i < 2; ++i) {
          c.forget();
          graph.replay();
        }
        c10::cuda::getCurrentCUDAStream().synchronize();
      }
      CHECK(same_bits(c.forward.out, out));
      if (deterministic) CHECK(same_bits(c.dqkv, dqkv));
      CHECK(relative_error(c.dqkv, dqkv) < 1e-3);
    }
  }
}

}  // namespace
}  // namespace narrowgauge::test
