#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

#include "lib/base/log.h"
#include "lib/ops/attention_cudnn.h"
#include "lib/ops/attention_kernels.h"
#include "lib/ops/attention_timing.h"
#include "lib/ops/choices.h"

namespace narrowgauge::ops {
namespace {

constexpr size_t kGroups = 6;                         // tried at most
constexpr std::chrono::milliseconds kPatience{1500};  // with the plans of one direction
constexpr double kTolerance = 1e-2;                   // of another plan's result, relative L2

class Trials {
 public:
  explicit Trials(const CudnnJob& job) : job_(job), data_(job.shape, job.device) {}

  // Milliseconds; nullopt: the result cannot be trusted.
  std::optional<double> time(const CudnnSetup& setup, bool forward) {
    if (!scratch_.defined() || scratch_.numel() < setup.scratch_bytes()) {
      scratch_.reset();
      scratch_ = at::empty({setup.scratch_bytes()}, data_.qkv.options().dtype(at::kByte));
    }
    const detail::Backward args{
        .dqkv = data_.dqkv, .dout = data_.dout, .qkv = data_.qkv, .forward = data_.forward};
    const auto run = [&] {
      forward ? detail::cudnn_forward(setup, data_.forward, data_.qkv, job_.shape, scratch_)
              : detail::cudnn_backward(setup, args, job_.shape, scratch_);
    };
    const at::Tensor& result = forward ? data_.forward.out : data_.dqkv;
    run();
    const at::Tensor first = result.clone();
    std::vector<double> times;
    for (int round = -kWarmUps; round < kRounds; ++round) {
      const double time = milliseconds_of(job_.device, run);
      if (round >= 0) times.push_back(time);
    }
    if ((forward || job_.deterministic) && !at::equal(first, result)) return std::nullopt;
    if (!agrees(first, forward ? out_ : gradient_)) return std::nullopt;
    std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
    return times[kRounds / 2];
  }

  // The plans of `pass` in the place of start's `which`.
  std::vector<CudnnTrial> time_plans(const cudnn::Pass& pass, const CudnnSetup& start,
                                     cudnn::Plan CudnnSetup::*which) {
    const int64_t room = std::max(job_.workspace_limit, (start.*which).workspace_bytes());
    const auto end = std::chrono::steady_clock::now() + kPatience;
    std::vector<CudnnTrial> trials;
    for (const std::string& name : pass.plan_names()) {
      if (std::chrono::steady_clock::now() > end) break;
      try {
        CudnnSetup setup = start;
        setup.*which = pass.build(name);
        if ((setup.*which).workspace_bytes() > room) continue;
        if (const auto time_taken = time(setup, which == &CudnnSetup::forward))
          trials.push_back({.setup = setup, .milliseconds = *time_taken});
      } catch (const cudnn::Refusal&) {
        continue;
      }
    }
    return trials;
  }

 private:
  static constexpr int kWarmUps = 2;
  static constexpr int kRounds = 5;

  // Whether x equals what came first for the same data, which `reference` keeps, but for rounding.
  static bool agrees(const at::Tensor& x, at::Tensor& reference) {
    if (!reference.defined()) reference = x;
    const at::Tensor wanted = reference.to(at::kFloat);
    const double off = x.to(at::kFloat).sub(wanted).norm().item<double>();
    return off <= kTolerance * wanted.norm().item<double>();
  }

  CudnnJob job_;
  AttentionData data_;
  at::Tensor scratch_;
  at::Tensor out_;       // first of all
  at::Tensor gradient_;  // first of all
};

// There is at least one.
const CudnnSetup& fastest(const std::vector<CudnnTrial>& trials) {
  return std::min_element(
             trials.begin(), trials.end(),
             [](const CudnnTrial& a, const CudnnTrial& b) { return a.milliseconds < b.milliseconds; })
      ->setup;
}

CudnnTrials run_trials(const CudnnJob& job) {
  const std::vector<CudnnSetup> candidates = detail::cudnn_candidates(job, job.deterministic ? kGroups : 1);
  const CudnnSetup& first = candidates.front();
  Trials trials(job);
  CudnnTrials result;
  result.forward = trials.time_plans(detail::cudnn_forward_pass(job), first, &CudnnSetup::forward);
  trials.time(first, /*forward=*/true);  // leaves what backward reads, whatever the last plan did
  for (const CudnnSetup& setup : candidates) {
    if (const auto time = trials.time(setup, /*forward=*/false)) result.groups.push_back({setup, *time});
  }
  const CudnnSetup& group = result.groups.empty() ? first : fastest(result.groups);
  result.backward =
      trials.time_plans(detail::cudnn_backward_pass(job, group.group), group, &CudnnSetup::backward);
  return result;
}

}  // namespace

CudnnTrials try_cudnn(const CudnnJob& job) {
  const c10::DeviceGuard guard(job.device);
  CudnnTrials trials = run_trials(job);
  c10::getDeviceAllocator(job.device.type())->emptyCache();
  return trials;
}

void tune_cudnn(const CudnnJob& job, bool timing) {
  const std::string key = detail::cudnn_setup_key(job);
  if (choices().find(key)) return;
  auto answer = choices().remembered(key);
  if (!answer && timing) answer = detail::cudnn_answer(try_cudnn(job));
  if (!answer) return;
  if (const auto why = detail::cudnn_refused(*answer))
    log_warn(fmt::format("cuDNN is not used for \"{}\": {}", key, *why));
  choices().store(key, *answer);
}

namespace detail {

nlohmann::json cudnn_answer(const CudnnTrials& trials) {
  const bool forward = !trials.forward.empty();
  if (!forward || trials.backward.empty()) {
    return {{"refused", fmt::format("no plan of its {} pass gives results that can be trusted",
                                    forward ? "backward" : "forward")}};
  }
  CudnnSetup best = fastest(trials.backward);
  best.forward = fastest(trials.forward).forward;
  return cudnn_setup_json(best);
}

std::optional<std::string> cudnn_refused(const nlohmann::json& answer) {
  if (!answer.is_object() || !answer.contains("refused")) return std::nullopt;
  const nlohmann::json& why = answer.at("refused");
  return why.is_string() ? why.get<std::string>() : why.dump();
}

}  // namespace detail

}  // namespace narrowgauge::ops
