// Launch plans as tables, for an RTX 5080 and an H200, and the errors of launchers. Needs no GPU.
#include <chrono>
#include <cstdint>
#include <limits>

#include "cuda/cross_entropy.h"
#include "cuda/embedding.h"
#include "cuda/error.h"
#include "cuda/launch_delay.h"
#include "cuda/launch_overlap.h"
#include "cuda/rms_norm.h"
#include "cuda/rope.h"
#include "cuda/scale.h"
#include "cuda/swiglu.h"
#include "tests/support/catch.h"

namespace narrowgauge::cuda {
namespace {

constexpr DeviceLimits kH200{.sm_count = 132,
                             .shared_bytes_per_block = 232448,
                             .max_threads_per_sm = 2048,
                             .compute_major = 9,
                             .compute_minor = 0};

TEST_CASE("a launch costs what it is told to cost") {
  const auto microseconds = [](int launches) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < launches; ++i) launch_delay();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  };
  set_launch_delay(200);
  CHECK(microseconds(10) >= 2000);
  CHECK(delayed_launches() == 10);
  set_launch_delay(0);
  CHECK(microseconds(1000) < 1000);
  CHECK(delayed_launches() == 0);
  CHECK_THROWS_AS(set_launch_delay(-1), LaunchError);
  CHECK_THROWS_AS(set_launch_delay(std::numeric_limits<double>::infinity()), LaunchError);
}

TEST_CASE("launches overlap unless they are told not to") {
  CHECK(launch_overlap());
  set_launch_overlap(false);
  CHECK_FALSE(launch_overlap());
  set_launch_overlap(true);
  CHECK(launch_overlap());
}

TEST_CASE("flat launches give one item a thread up to 64 waves") {
  CHECK(plan_flat(1, kRtx5080Limits).blocks == 1);
  CHECK(plan_flat(257, kRtx5080Limits).blocks == 2);
  CHECK(plan_flat(int64_t{1} << 40, kRtx5080Limits).blocks == 64 * 84 * 6);
  CHECK(plan_flat(int64_t{1} << 40, kH200).blocks == 64 * 132 * 8);
  CHECK(plan_scale(1000, 2, kH200).blocks == 1);
  CHECK(plan_scale(int64_t{2048} * 8 + 1, 2, kH200).blocks == 9);
  CHECK(plan_swiglu(16, 4736, 2, true, kH200).blocks == 16 * 592 / 256);
  CHECK(plan_swiglu(16, 4737, 2, false, kH200).blocks == 297);
}

TEST_CASE("RoPE takes whole heads with a warp where they fit") {
  const RopeLaunch heads = plan_rope(64, 32, 112, 2, true, kH200);
  CHECK(heads.lanes == 14);
  CHECK(heads.flat.blocks == 64 * 32 / 256);
  CHECK(plan_rope(64, 5, 128, 4, true, kH200).lanes == 32);
  for (const RopeLaunch pairs :
       {plan_rope(64, 4, 256, 4, true, kH200), plan_rope(64, 4, 256, 2, false, kH200)}) {
    CHECK(pairs.lanes == 0);
    CHECK(pairs.flat.blocks == 64 * 4 * 128 / 256);
  }
}

TEST_CASE("the norm shares a row as its width asks") {
  struct Row {
    int64_t cols;
    int bytes;
    bool vectorised;
    int lanes;
    int vectors;
    int threads;
  };
  for (const Row& r :
       {Row{8, 2, true, 1, 1, 128}, Row{112, 2, true, 16, 1, 128}, Row{112, 4, true, 32, 1, 128},
        Row{256, 2, true, 32, 1, 128}, Row{264, 2, true, 32, 2, 128}, Row{1792, 2, true, 32, 7, 128},
        Row{1792, 4, true, 64, 7, 64}, Row{2048, 2, true, 32, 8, 128}, Row{4096, 2, true, 64, 8, 64},
        Row{8192, 2, true, 128, 8, 128}, Row{8200, 2, true, 128, 0, 128}, Row{1792, 2, false, 128, 0, 128}}) {
    CAPTURE(r.cols, r.bytes, r.vectorised);
    const RmsNormLaunch launch = plan_rms_norm(1000, r.cols, r.bytes, r.vectorised);
    CHECK(launch.lanes == r.lanes);
    CHECK(launch.vectors == r.vectors);
    CHECK(launch.threads == r.threads);
    CHECK(launch.blocks == ceil_div(1000, r.threads / r.lanes));
    if (launch.vectors > 0) CHECK(int64_t{launch.lanes} * launch.vectors * 16 >= r.cols * r.bytes);
  }
}

TEST_CASE("every width is covered by the vectors of its threads") {
  for (int64_t cols = 8; cols <= 8192; cols += 8) {
    const RmsNormLaunch launch = plan_rms_norm(1, cols, 2, true);
    const bool covered = int64_t{launch.lanes} * launch.vectors * 8 >= cols;
    const bool whole_blocks = launch.threads % launch.lanes == 0 && launch.threads <= kRmsNormThreads;
    // Threads that share a row either stay within a warp or are a whole block of whole warps.
    const bool aligned = launch.lanes <= 32 || launch.threads == launch.lanes;
    const bool single = launch.lanes >= 32 || launch.vectors == 1;
    if (!(covered && whole_blocks && aligned && single)) FAIL("cols " << cols);
  }
}

TEST_CASE("the norm's backward stays resident and its scratch fits every path") {
  for (const DeviceLimits& limits : {kRtx5080Limits, kH200}) {
    for (const int64_t cols : {8, 41, 112, 1792, 2048, 4096, 8192, 8200, 65536}) {
      for (const int64_t rows : {1, 100, 131073}) {
        CAPTURE(limits.sm_count, cols, rows);
        int64_t most = 0;
        for (const bool vectorised : {false, true}) {
          if (vectorised && cols % 8 != 0) continue;
          const RmsNormLaunch launch = plan_rms_norm_backward(rows, cols, 2, vectorised, limits);
          most = std::max(most, launch.blocks * cols);
          CHECK(launch.blocks >= 1);
          CHECK(int64_t{launch.blocks} * (launch.threads / launch.lanes) <
                rows + launch.threads / launch.lanes);
          CHECK(launch.blocks * launch.threads <= limits.sm_count * limits.max_threads_per_sm);
          CHECK(launch.shared_bytes <= limits.shared_bytes_per_block);
        }
        CHECK(rms_norm_backward_scratch(rows, cols, 2, limits) == most);
      }
    }
  }
  CHECK(plan_rms_norm_backward(16384, 1792, 2, true, kRtx5080Limits).blocks == 84);
  CHECK(plan_rms_norm_backward(16384, 1792, 2, true, kH200).blocks == 132 * 2);
  CHECK(rms_norm_backward_scratch(0, 1792, 2, kH200) == 0);
}

#if NARROWGAUGE_CUDA
TEST_CASE("the embedding's backward has a warp for every token and 32 vectors") {
  const auto of_step = plan_embedding_backward(4096, 1792, 8, kH200);
  CHECK(of_step.threads == 256);
  CHECK(of_step.row_blocks == 512);
  CHECK(of_step.column_blocks == 7);
  CHECK(plan_embedding_backward(9, 41, 1, kH200).row_blocks == 2);
  CHECK(plan_embedding_backward(9, 41, 1, kH200).column_blocks == 2);
  CHECK(plan_embedding_backward(INT32_MAX, 8, 8, kRtx5080Limits).row_blocks == 65535);
}

TEST_CASE("the cross-entropy stages the next row where the card has room for it") {
  const auto of_h200 = plan_cross_entropy(4096, 32000, 8, true, kH200);
  CHECK(of_h200.threads == 512);
  CHECK(of_h200.blocks == 132 * 2);
  CHECK(of_h200.shared_bytes == 64000);
  const auto of_rtx = plan_cross_entropy(4096, 32000, 8, true, kRtx5080Limits);
  CHECK(of_rtx.blocks == 84);
  CHECK(of_rtx.shared_bytes == 64000);
  CHECK(plan_cross_entropy(4096, 65536, 8, true, kRtx5080Limits).shared_bytes == 0);
  CHECK(plan_cross_entropy(4096, 65536, 8, true, kRtx5080Limits).resident);
  CHECK_FALSE(plan_cross_entropy(4096, 65544, 8, true, kH200).resident);
  CHECK(plan_cross_entropy(4096, 65544, 8, true, kH200).blocks == 4096);
  CHECK(plan_cross_entropy(3, 1000, 8, true, kH200).blocks == 3);
}

TEST_CASE("launchers refuse bad arguments before they launch") {
  alignas(16) float memory[64] = {};
  float* p = memory;
  const DeviceLimits& limits = kRtx5080Limits;
  CHECK_THROWS_AS(scale<float>({.y = p, .x = p, .count = -1, .factor = 1}, limits, nullptr), LaunchError);
  CHECK_THROWS_AS(scale<float>({.y = p, .x = nullptr, .count = 1, .factor = 1}, limits, nullptr),
                  LaunchError);
  CHECK_THROWS_AS(swiglu<float>({.out = p, .gate_up = nullptr, .rows = 1, .cols = 1}, limits, nullptr),
                  LaunchError);
  CHECK_THROWS_AS(swiglu<float>({.out = p, .gate_up = p, .rows = 1, .cols = 0}, limits, nullptr),
                  LaunchError);
  CHECK_THROWS_AS(
      swiglu_backward<float>({.dgate_up = p, .out = nullptr, .dout = p, .gate_up = p, .rows = -1, .cols = 1},
                             limits, nullptr),
      LaunchError);

  Rope<float> rope_args{.qkv = p,
                        .cos = p,
                        .sin = p,
                        .positions = nullptr,
                        .tokens = 1,
                        .row_stride = 8,
                        .heads = 2,
                        .head_dim = 4,
                        .context = 0,
                        .inverse = false};
  CHECK_THROWS_AS(rope(rope_args, limits, nullptr), LaunchError);
  rope_args.context = 1;
  rope_args.head_dim = 3;
  CHECK_THROWS_AS(rope(rope_args, limits, nullptr), LaunchError);
  rope_args.head_dim = 6;
  CHECK_THROWS_AS(rope(rope_args, limits, nullptr), LaunchError);

  const RmsNorm<float> norm{.y = p,
                            .rstd = p,
                            .sum = nullptr,
                            .x = p,
                            .residual = nullptr,
                            .weight = p,
                            .rows = 1,
                            .cols = 4,
                            .y_stride = 4,
                            .x_stride = 4,
                            .eps = 1e-5f};
  const auto refused = [&](auto change) {
    RmsNorm<float> bad = norm;
    change(bad);
    CHECK_THROWS_AS(rms_norm(bad, limits, nullptr), LaunchError);
  };
  refused([](auto& a) { a.rows = int64_t{1} << 31; });
  refused([](auto& a) { a.cols = 0; });
  refused([](auto& a) { a.group = 0; });
  refused([](auto& a) { a.group = 2; });  // y_stride is below group * cols
  refused([](auto& a) { a.x_stride = -4; });
  refused([](auto& a) { a.weight = nullptr; });
  refused([&](auto& a) { a.residual = p; });
  refused([&](auto& a) { a.residual = a.sum = p, a.sum_stride = 4; });  // y over sum

  RmsNormBackward<float> backward{.dx = p,
                                  .dweight = p,
                                  .scratch = nullptr,
                                  .dy = p,
                                  .x = p,
                                  .dresidual = nullptr,
                                  .weight = p,
                                  .rstd = p,
                                  .rows = 1,
                                  .cols = 4,
                                  .dx_stride = 4,
                                  .dy_stride = 4,
                                  .x_stride = 4};
  CHECK_THROWS_AS(rms_norm_backward(backward, limits, nullptr), LaunchError);
  backward.scratch = p;
  backward.dresidual = nullptr;
  backward.y = p;  // that is dx
  backward.y_stride = 4;
  CHECK_THROWS_AS(rms_norm_backward(backward, limits, nullptr), LaunchError);
}

TEST_CASE("nothing to do launches nothing") {  // a launch would fail on a machine without a GPU
  const DeviceLimits& limits = kRtx5080Limits;
  CHECK_NOTHROW(scale<float>({.y = nullptr, .x = nullptr, .count = 0, .factor = 1}, limits, nullptr));
  CHECK_NOTHROW(swiglu<float>({.out = nullptr, .gate_up = nullptr, .rows = 0, .cols = 4}, limits, nullptr));
  CHECK_NOTHROW(rope<float>({.qkv = nullptr,
                             .cos = nullptr,
                             .sin = nullptr,
                             .positions = nullptr,
                             .tokens = 0,
                             .row_stride = 8,
                             .heads = 2,
                             .head_dim = 4,
                             .context = 1,
                             .inverse = false},
                            limits, nullptr));
  CHECK_NOTHROW(rms_norm<float>({.y = nullptr,
                                 .rstd = nullptr,
                                 .sum = nullptr,
                                 .x = nullptr,
                                 .residual = nullptr,
                                 .weight = nullptr,
                                 .rows = 0,
                                 .cols = 4,
                                 .y_stride = 4,
                                 .x_stride = 4,
                                 .eps = 0},
                                limits, nullptr));
}
#endif

}  // namespace
}  // namespace narrowgauge::cuda
