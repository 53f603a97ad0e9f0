// cuDNN's graph API: exactness, determinism, groups, capture.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

#include "lib/ops/attention_kernels.h"
#include "tests/ops/attention_cases.h"

namespace narrowgauge::test {
namespace {

using ops::AttentionKernel;
using ops::AttentionShape;
namespace detail = ops::detail;

const at::Device kGpu{at::kCUDA, 0};
const auto kBf16 = at::kBFloat16;

// A device without a deterministic backward says so once a shape.
bool refused(const AttentionShape& s, bool deterministic) {
  const std::string why = detail::cudnn_refusal(s, deterministic, kGpu);
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

TEST_CASE("cudnn's backward in groups") {
  for (const int64_t context : {192, 512, 1000}) {
    const auto s = shape_of(2, context, 8, 2, 112);
    if (refused(s, true)) continue;
    const Case c(s, true);
    ops::attention_forward(c.forward, c.qkv, c.attention(), c.scratch);
    const int64_t whole = detail::cudnn_scratch_bytes(s, true, kGpu, int64_t{1} << 40);
    const auto groups = [&](int64_t limit) {
      const AttentionShape g = detail::cudnn_backward_group(s, true, kGpu, limit);
      CHECK(g.heads == 4 * g.kv_heads);
      return s.batch * s.kv_heads / (g.batch * g.kv_heads);
    };
    CHECK(groups(whole) == 1);
    CHECK(groups(whole * 6 / 10) > 1);
    CHECK(groups(1) == 4);

    const auto backward = [&](int64_t limit) {
      const at::Tensor dqkv = at::full(c.qkv.sizes(), kNan, c.qkv.options());
      const at::Tensor scratch =
          at::empty({detail::cudnn_scratch_bytes(s, true, kGpu, limit)}, c.qkv.options().dtype(at::kByte));
      const detail::Backward args{.dqkv = dqkv, .dout = c.dout, .qkv = c.qkv, .forward = c.forward};
      detail::cudnn_backward(args, s, true, scratch, limit);
      return dqkv;
    };
    const Case plain(s, false);
    plain.run();
    for (const int64_t limit : {whole, whole * 6 / 10, int64_t{1}}) {
      INFO("context " << context << " limit " << limit << " groups " << groups(limit));
      const at::Tensor first = backward(limit);
      CHECK(first.isfinite().all().item<bool>());
      CHECK(relative_error(first, plain.dqkv) < 1e-2);
      for (int i = 0; i < 3; ++i) CHECK(same_bits(first, backward(limit)));
    }
  }
}

TEST_CASE("cudnn's deterministic workspace is bounded at the sizes that matter") {
  for (const auto& s :
       {shape_of(1, 4096, 16, 16, 112), shape_of(2, 4096, 16, 16, 112), shape_of(1, 8192, 16, 16, 112),
        shape_of(4, 1024, 16, 16, 112), shape_of(1, 4096, 32, 8, 128)}) {
    for (const bool deterministic : {false, true}) {
      if (refused(s, deterministic)) continue;
      const int64_t bytes = detail::cudnn_scratch_bytes(s, deterministic, kGpu);
      const AttentionShape group = detail::cudnn_backward_group(s, deterministic, kGpu);
      WARN("B " << s.batch << " T " << s.context << " Hq " << s.heads << " deterministic " << deterministic
                << ": " << (bytes >> 20) << " MiB, groups of B " << group.batch << " Hq " << group.heads);
      CHECK(bytes <= detail::kCudnnWorkspaceLimit);
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
