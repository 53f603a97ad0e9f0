#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "lib/base/log.h"
#include "lib/ops/attention_cudnn.h"
#include "lib/ops/choices.h"

namespace narrowgauge::ops {
namespace {

cudnn::Problem problem_of(const AttentionShape& part, const AttentionShape& whole) {
  return {.sequences = part.batch,
          .context = part.context,
          .heads = part.heads,
          .kv_heads = part.kv_heads,
          .head_dim = part.head_dim,
          .packed_row = (whole.heads + 2 * whole.kv_heads) * whole.head_dim,
          .out_row = whole.heads * whole.head_dim};
}

// The equal parts that s can be cut into, largest first. A part's rows of lse start on 16 bytes.
std::vector<AttentionShape> groups_of(const AttentionShape& s) {
  std::vector<AttentionShape> groups{s};
  const auto add = [&](int64_t batch, int64_t kv_heads) {
    AttentionShape part = s;
    part.batch = batch;
    part.kv_heads = kv_heads;
    part.heads = kv_heads * (s.heads / s.kv_heads);
    if (part.batch * part.heads * part.context % 4 == 0) groups.push_back(part);
  };
  for (int64_t n = s.batch - 1; n >= 1; --n) {
    if (s.batch % n == 0) add(n, s.kv_heads);
  }
  for (int64_t n = s.kv_heads - 1; n >= 1; --n) {
    if (s.kv_heads % n == 0) add(1, n);
  }
  return groups;
}

// What `value` describes; nullopt when that cannot be had here.
std::optional<CudnnSetup> setup_from(const nlohmann::json& value, const CudnnJob& job) {
  try {
    for (const AttentionShape& group : groups_of(job.shape)) {
      if (value.at("batch") != group.batch || value.at("heads") != group.heads) continue;
      return CudnnSetup{
          .group = group,
          .forward = detail::cudnn_forward_pass(job).build(value.at("forward").get<std::string>()),
          .backward = detail::cudnn_backward_pass(job, group).build(value.at("backward").get<std::string>())};
    }
  } catch (const nlohmann::json::exception&) {
  } catch (const cudnn::Refusal&) {
  }
  return std::nullopt;
}

struct Entry {
  uint64_t version = 0;  // of choices()
  std::optional<nlohmann::json> chosen;
  const CudnnSetup* setup = nullptr;
  std::string refusal;  // without a setup
};

// Setups are never destroyed: plans must not outlive the driver, nor captured graphs their plans.
const CudnnSetup* keep(CudnnSetup setup) {
  static auto& kept = *new std::deque<CudnnSetup>;
  return &kept.emplace_back(std::move(setup));
}

void resolve(Entry& entry, const CudnnJob& job) {
  entry.setup = nullptr;
  entry.refusal.clear();
  if (const auto refused = entry.chosen ? detail::cudnn_refused(*entry.chosen) : std::nullopt) {
    entry.refusal = *refused;
    return;
  }
  const c10::DeviceGuard guard(job.device);
  if (entry.chosen) {
    if (auto setup = setup_from(*entry.chosen, job)) {
      entry.setup = keep(std::move(*setup));
      return;
    }
    log_warn(fmt::format("the chosen plans of \"{}\" ({}) cannot be used here: bits may differ",
                         detail::cudnn_setup_key(job), entry.chosen->dump()));
  }
  try {
    entry.setup = keep(detail::cudnn_candidates(job, 1).front());
  } catch (const cudnn::Refusal& refusal) {
    entry.refusal = refusal.what();
  }
}

}  // namespace

int64_t CudnnSetup::scratch_bytes() const {
  return std::max(forward.workspace_bytes(), backward.workspace_bytes());
}

const CudnnSetup& cudnn_setup(const CudnnJob& job) {
  using Key = std::tuple<int, int64_t, int64_t, int64_t, int64_t, int64_t, bool, int64_t>;
  static auto& mutex = *new std::mutex;
  static auto& entries = *new std::map<Key, Entry>;
  const AttentionShape& s = job.shape;
  const Key key{job.device.index(), s.batch,    s.context,         s.heads,
                s.kv_heads,         s.head_dim, job.deterministic, job.workspace_limit};
  const std::lock_guard lock(mutex);
  Entry& entry = entries[key];
  const uint64_t version = choices().version();
  const bool known = entry.setup || !entry.refusal.empty();
  if (!known || entry.version != version) {
    auto chosen = choices().find(detail::cudnn_setup_key(job));
    const bool same = known && chosen == entry.chosen;
    entry.chosen = std::move(chosen);
    if (!same) resolve(entry, job);
    entry.version = version;
  }
  if (!entry.setup) throw cudnn::Refusal(entry.refusal);
  return *entry.setup;
}

std::string cudnn_refusal(const CudnnJob& job) {
  try {
    cudnn_setup(job);
    return {};
  } catch (const cudnn::Refusal& refusal) {
    return std::string("cuDNN refuses it") +
           (job.deterministic ? " with a deterministic backward pass: " : ": ") + refusal.what();
  }
}

std::string attention_key(const AttentionShape& s, bool deterministic, int64_t workspace_limit) {
  std::string key = fmt::format("B{} T{} Hq{} Hk{} D{}", s.batch, s.context, s.heads, s.kv_heads, s.head_dim);
  if (deterministic) key += fmt::format(" deterministic in {} bytes", workspace_limit);
  return key;
}

namespace detail {

cudnn::Pass cudnn_forward_pass(const CudnnJob& job) {
  return cudnn::Pass::forward(problem_of(job.shape, job.shape));
}

cudnn::Pass cudnn_backward_pass(const CudnnJob& job, const AttentionShape& group) {
  return cudnn::Pass::backward(problem_of(group, job.shape), job.deterministic);
}

std::string cudnn_setup_key(const CudnnJob& job) {
  return "attention plans " + attention_key(job.shape, job.deterministic, job.workspace_limit);
}

nlohmann::json cudnn_setup_json(const CudnnSetup& setup) {
  return {{"batch", setup.group.batch},
          {"heads", setup.group.heads},
          {"forward", setup.forward.name()},
          {"backward", setup.backward.name()}};
}

std::vector<CudnnSetup> cudnn_candidates(const CudnnJob& job, size_t at_most) {
  const cudnn::Plan forward = cudnn_forward_pass(job).build_first();
  const int64_t limit = job.deterministic ? job.workspace_limit : std::numeric_limits<int64_t>::max();
  const std::vector<AttentionShape> groups = groups_of(job.shape);
  std::vector<CudnnSetup> found;
  double bytes_a_head = 0;  // of the last group tried; the workspace grows with the heads about in proportion
  for (const AttentionShape& group : groups) {
    if (found.size() == at_most) break;
    const bool needed = found.empty() && &group == &groups.back();
    const auto heads = static_cast<double>(group.batch * group.heads);
    if (!needed && 0.9 * bytes_a_head * heads > static_cast<double>(limit)) continue;
    try {
      const cudnn::Plan backward = cudnn_backward_pass(job, group).build_first();
      if (needed || backward.workspace_bytes() <= limit)
        found.push_back({.group = group, .forward = forward, .backward = backward});
      bytes_a_head = static_cast<double>(backward.workspace_bytes()) / heads;
    } catch (const cudnn::Refusal&) {
      if (needed) throw;
    }
  }
  return found;
}

}  // namespace detail
}  // namespace narrowgauge::ops
