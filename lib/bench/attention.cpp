#include "lib/bench/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "lib/base/log.h"
#include "lib/bench/attention_pass.h"
#include "lib/ops/attention_choice.h"
#include "lib/ops/attention_cudnn.h"

namespace narrowgauge::bench {
namespace {

Spread time_pass(const Machine& machine, const ops::Attention& attention, bool forward) {
  return time_sets(machine.gpu(), rotating_sets(machine.gpu(), [&] {
                     return prepare_attention(machine.device(), attention, at::kBFloat16, forward);
                   }));
}

ops::AttentionJob job_of(const Machine& machine, const Config& config, int64_t batch, bool deterministic) {
  const ModelConfig& m = config.model;
  return {.device = machine.device(),
          .dtype = at::kBFloat16,
          .shape = {.batch = batch,
                    .context = config.data.context,
                    .heads = m.heads,
                    .kv_heads = m.kv_head_count(),
                    .head_dim = m.head_size()},
          .deterministic = deterministic,
          .document_mask = false,
          .workspace_limit = config.memory.attention_workspace};
}

Json trials_json(const std::vector<ops::CudnnTrial>& trials, ops::cudnn::Plan ops::CudnnSetup::*which) {
  Json list = Json::array();
  for (const ops::CudnnTrial& trial : trials) {
    list.push_back({{"plan", (trial.setup.*which).name()},
                    {"batch", trial.setup.group.batch},
                    {"heads", trial.setup.group.heads},
                    {"bytes", (trial.setup.*which).workspace_bytes()},
                    {"us", trial.milliseconds * 1e3}});
  }
  return list;
}

// Enough for every group at the sizes that are measured, and a bound for odd plans.
constexpr int64_t kRoom = int64_t{4} << 30;

// What is in force within the job's limit, and what there is with kRoom.
Json inside_cudnn(const ops::AttentionJob& job) {
  ops::CudnnJob cudnn{.shape = job.shape,
                      .device = job.device,
                      .deterministic = job.deterministic,
                      .workspace_limit = job.workspace_limit};
  const ops::CudnnSetup& setup = ops::cudnn_setup(cudnn);
  cudnn.workspace_limit = kRoom;
  const ops::CudnnTrials trials = ops::try_cudnn(cudnn);
  return {{"batch", setup.group.batch},
          {"heads", setup.group.heads},
          {"bytes", setup.scratch_bytes()},
          {"forward_plan", setup.forward.name()},
          {"backward_plan", setup.backward.name()},
          {"groups", trials_json(trials.groups, &ops::CudnnSetup::backward)},
          {"forward_plans", trials_json(trials.forward, &ops::CudnnSetup::forward)},
          {"backward_plans", trials_json(trials.backward, &ops::CudnnSetup::backward)}};
}

}  // namespace

Json measure_attention(const Machine& machine, const Config& config, int64_t batch) {
  const ModelConfig& m = config.model;
  const ops::AttentionShape shape = job_of(machine, config, batch, false).shape;
  const auto tokens = static_cast<double>(batch * shape.context);
  const double flops = 2.0 * tokens * static_cast<double>(shape.context * shape.heads * shape.head_dim);
  Json kernels = Json::array();
  for (const char* name : {"cudnn", "flash"}) {
    for (const bool deterministic : {false, true}) {
      Json row = {{"kernel", name}, {"deterministic", deterministic}};
      try {
        train::set_numerics(deterministic);
        const ops::AttentionJob job = job_of(machine, config, batch, deterministic);
        const ops::Attention attention{.shape = shape,
                                       .kernel = ops::choose_attention(name, job).kernel,
                                       .deterministic = deterministic,
                                       .documents = {},
                                       .workspace_limit = job.workspace_limit};
        const Spread forward = time_pass(machine, attention, true);
        const Spread backward = time_pass(machine, attention, false);
        row["forward"] = to_json(forward);
        row["backward"] = to_json(backward);
        row["forward_tflops"] = flops / forward.median * 1e-6;
        row["backward_tflops"] = 2.5 * flops / backward.median * 1e-6;
        row["us_per_token"] = static_cast<double>(m.layers) * (forward.median + backward.median) / tokens;
      } catch (const std::invalid_argument& refused) {
        row["refused"] = refused.what();
      }
      kernels.push_back(row);
      release_cached_memory();
    }
  }
  train::set_numerics(config.train.is_deterministic());
  return {{"batch", batch}, {"context", shape.context}, {"kernels", kernels}};
}

double fastest_attention(const Json& measured, bool deterministic) {
  double best = std::numeric_limits<double>::infinity();
  for (const Json& row : measured["kernels"]) {
    if (!row.contains("us_per_token") || (deterministic && !row["deterministic"].get<bool>())) continue;
    best = std::min(best, row["us_per_token"].get<double>());
  }
  return best;
}

Json bench_attention(Machine& machine, const Config& config, const std::vector<int64_t>& batches) {
  Json result = machine.head("attention");
  Json runs = Json::array();
  for (const int64_t batch : batches) {
    log_info(fmt::format("bench: attention over {} x {} tokens", batch, config.data.context));
    Json run = measure_attention(machine, config, batch);
    for (Json& row : run["kernels"]) {
      if (row["kernel"] == "cudnn" && !row.contains("refused"))
        row["cudnn"] = inside_cudnn(job_of(machine, config, batch, row["deterministic"].get<bool>()));
    }
    runs.push_back(run);
  }
  result["runs"] = runs;
  result["clocks_end"] = machine.clocks();
  return result;
}

}  // namespace narrowgauge::bench
