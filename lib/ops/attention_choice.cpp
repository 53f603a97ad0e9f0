#include "lib/ops/attention_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "lib/base/log.h"
#include "lib/ops/attention_cudnn.h"
#include "lib/ops/attention_timing.h"
#include "lib/ops/choices.h"

namespace narrowgauge::ops {
namespace {

constexpr AttentionKernel kKernels[] = {AttentionKernel::flash, AttentionKernel::cudnn,
                                        AttentionKernel::math};

CudnnJob cudnn_job(const AttentionJob& job) {
  return {.shape = job.shape,
          .device = job.device,
          .deterministic = job.deterministic,
          .workspace_limit = job.workspace_limit};
}

// Why `kernel` cannot do the job; empty when it can.
std::string refusal(AttentionKernel kernel, const AttentionJob& job) {
  if (kernel == AttentionKernel::math) return {};
  if (job.device.is_cpu()) return kernel == AttentionKernel::flash ? "" : "it needs a CUDA device";
  if (job.dtype != at::kBFloat16) return "on CUDA it needs bf16";
  const int64_t limit = kernel == AttentionKernel::flash ? 256 : 128;
  if (job.shape.head_dim % 8 != 0 || job.shape.head_dim > limit) {
    return fmt::format("it needs a head_dim that is a multiple of 8 and at most {}, not {}", limit,
                       job.shape.head_dim);
  }
  if (kernel == AttentionKernel::flash) return {};
  if (job.document_mask) return "it has no document mask";
  if (job.shape.context < 2) return "it needs a context of at least 2";
  return cudnn_refusal(cudnn_job(job));
}

std::string key_of(const AttentionJob& job) {
  return "attention bf16 " + attention_key(job.shape, job.deterministic, job.workspace_limit);
}

nlohmann::json to_json(const AttentionChoice& choice) {
  nlohmann::json times = nlohmann::json::object();
  for (const AttentionTime& time : choice.times)
    times[attention_kernel_name(time.kernel)] = time.milliseconds;
  return {{"kernel", attention_kernel_name(choice.kernel)}, {"milliseconds", times}};
}

// nullopt: not a choice between `able`.
std::optional<AttentionChoice> from_json(const nlohmann::json& value,
                                         const std::vector<AttentionKernel>& able) {
  if (!value.is_object() || !value.contains("kernel") || !value.contains("milliseconds")) return std::nullopt;
  std::optional<AttentionChoice> choice;
  for (const AttentionKernel kernel : able) {
    if (value["kernel"] == attention_kernel_name(kernel))
      choice = AttentionChoice{.kernel = kernel, .times = {}};
  }
  if (!choice) return std::nullopt;
  for (const AttentionKernel kernel : able) {
    const auto& times = value["milliseconds"];
    const auto time = times.find(attention_kernel_name(kernel));
    if (time != times.end() && time->is_number()) choice->times.push_back({kernel, time->get<double>()});
  }
  if (choice->times.size() != able.size()) choice->times.clear();
  std::stable_partition(choice->times.begin(), choice->times.end(),
                        [&](const AttentionTime& time) { return time.kernel == choice->kernel; });
  return choice;
}

AttentionChoice fastest(const std::vector<AttentionKernel>& able, const AttentionJob& job) {
  const std::string key = key_of(job);
  if (const auto in_force = choices().find(key)) {
    if (const auto choice = from_json(*in_force, able)) return *choice;
    log_warn(fmt::format("the chosen kernel of \"{}\" ({}) cannot be used here: {}, and bits may differ", key,
                         in_force->dump(), job.timing ? "timed anew" : "flash is"));
  }
  std::optional<AttentionChoice> choice;
  if (const auto remembered = choices().remembered(key)) choice = from_json(*remembered, able);
  if (!choice && !job.timing) return {.kernel = able.front(), .times = {}};
  if (!choice) {
    const auto times = time_attention(able, job);
    choice = AttentionChoice{.kernel = times.front().kernel, .times = times};
  }
  choices().store(key, to_json(*choice));
  return *choice;
}

AttentionChoice automatic(const AttentionJob& job) {
  std::vector<AttentionKernel> able;
  for (const AttentionKernel kernel : {AttentionKernel::flash, AttentionKernel::cudnn}) {
    if (refusal(kernel, job).empty()) able.push_back(kernel);
  }
  if (!able.empty() && able.back() == AttentionKernel::cudnn) {
    tune_cudnn(cudnn_job(job), job.timing);
    if (!refusal(AttentionKernel::cudnn, job).empty()) able.pop_back();
  }
  if (able.size() > 1) return fastest(able, job);
  return {.kernel = able.empty() ? AttentionKernel::math : able.front(), .times = {}};
}

}  // namespace

std::string describe(const AttentionChoice& choice) {
  const std::string name = attention_kernel_name(choice.kernel);
  if (choice.times.empty()) return name;
  std::string text =
      fmt::format("{} ({:.2f} ms a layer and micro-batch", name, choice.times.front().milliseconds);
  for (size_t i = 1; i < choice.times.size(); ++i) {
    const AttentionTime& other = choice.times[i];
    text += fmt::format(", {} {:.2f} ms", attention_kernel_name(other.kernel), other.milliseconds);
  }
  return text + ")";
}

AttentionChoice choose_attention(const std::string& request, const AttentionJob& job) {
  if (request == "auto") return automatic(job);
  for (const AttentionKernel kernel : kKernels) {
    if (request != attention_kernel_name(kernel)) continue;
    std::string why = refusal(kernel, job);
    if (why.empty() && kernel == AttentionKernel::cudnn) {
      tune_cudnn(cudnn_job(job), job.timing);
      why = refusal(kernel, job);
    }
    if (!why.empty()) throw std::invalid_argument(request + " attention cannot be used here: " + why);
    return {.kernel = kernel, .times = {}};
  }
  throw std::invalid_argument("unknown attention kernel '" + request + "' (auto, flash, cudnn or math)");
}

double attention_milliseconds(const std::string& request, const AttentionJob& job) {
  const AttentionChoice choice = choose_attention(request, job);
  if (!choice.times.empty()) return choice.times.front().milliseconds;
  const std::string key = fmt::format("attention time {}{} {}", attention_kernel_name(choice.kernel),
                                      job.document_mask ? " documents" : "",
                                      attention_key(job.shape, job.deterministic, job.workspace_limit));
  const auto known = choices().find(key);
  const auto value = known ? known : choices().remembered(key);
  const double time = value && value->is_number() ? value->get<double>()
                                                  : time_attention({choice.kernel}, job).front().milliseconds;
  choices().store(key, time);
  return time;
}

AttentionKernel usable_kernel(AttentionKernel chosen, const AttentionJob& job) {
  for (const AttentionKernel kernel : {chosen, AttentionKernel::flash}) {
    if (refusal(kernel, job).empty()) return kernel;
  }
  return AttentionKernel::math;
}

}  // namespace narrowgauge::ops
