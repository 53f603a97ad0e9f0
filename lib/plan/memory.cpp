#include "lib/plan/memory.h"

#include <algorithm>
#include <numeric>

#include "cuda/gemm_workspace.h"
#include "lib/plan/replay.h"

namespace narrowgauge::plan {
namespace {

constexpr int64_t kMebibyte = int64_t{1} << 20;
constexpr int64_t kSegment = 2 * kMebibyte;

int64_t round_up(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

layout::Element element(const std::string& dtype) {
  return dtype == "bf16" ? layout::Element::bf16 : layout::Element::fp32;
}

// What LibTorch's allocator takes from the device for tensors of these sizes beyond their bytes: segments of
// 2 MiB for the small ones together, of 20 MiB for those from 1 to 10 MiB together, multiples of 2 MiB for
// each larger one.
int64_t allocator_rounding(const std::vector<int64_t>& tensors) {
  int64_t small = 0;
  int64_t medium = 0;
  int64_t rounding = 0;
  for (const int64_t bytes : tensors) {
    if (bytes <= kMebibyte) {
      small += bytes;
    } else if (bytes < 10 * kMebibyte) {
      medium += bytes;
    } else {
      rounding += round_up(bytes, kSegment) - bytes;
    }
  }
  return rounding + round_up(small, kSegment) - small + round_up(medium, 20 * kMebibyte) - medium;
}

void add_slab(Bytes& bytes, const Used& used, int64_t slab) {
  const auto of = [&](layout::Category category) { return used[static_cast<size_t>(category)]; };
  bytes[Kind::saved] += of(layout::Category::saved);
  bytes[Kind::temporary] += of(layout::Category::temporary);
  bytes[Kind::loss] += of(layout::Category::loss);
  bytes[Kind::scratch] += of(layout::Category::workspace);
  bytes[Kind::slab_rest] += slab - std::accumulate(used.begin(), used.end(), int64_t{0});
}

}  // namespace

const char* kind_name(Kind kind) {
  constexpr std::array<const char*, kKinds> kNames{"weights",
                                                   "gradients",
                                                   "optimizer",
                                                   "saved activations",
                                                   "temporaries",
                                                   "loss",
                                                   "workspaces",
                                                   "unused slab",
                                                   "sample",
                                                   "GEMM workspace",
                                                   "batches and tables",
                                                   "allocator rounding",
                                                   "outside the allocator"};
  return kNames.at(static_cast<size_t>(kind));
}

int64_t Bytes::sum() const { return std::accumulate(of.begin(), of.end(), int64_t{0}); }

layout::StaticBytes static_bytes(const Config& config) {
  const bool fp32 = config.train.dtype == "fp32";
  return layout::static_bytes(config.model, config.optim, element(config.train.dtype),
                              element(fp32 ? config.train.dtype : config.memory.grad_dtype));
}

MemoryModel::MemoryModel(const Config& config, Surroundings surroundings)
    : config_(config), around_(std::move(surroundings)), fixed_(static_bytes(config)) {}

AttentionScratch MemoryModel::scratch(int64_t sequences) const {
  if (around_.attention_scratch) return around_.attention_scratch(sequences);
  return around_.limits ? slab_scratch(config_, sequences) : AttentionScratch{};
}

int64_t MemoryModel::outside_scratch(int64_t sequences) const {
  return around_.limits ? allocated_scratch(config_, sequences, around_.limits->sm_count) : 0;
}

layout::StepShape MemoryModel::pass_shape(layout::Purpose purpose, int64_t sequences,
                                          int64_t loss_chunk) const {
  return {.purpose = purpose,
          .batch = sequences,
          .context = config_.data.context,
          .levels = {},
          .element = element(config_.train.dtype),
          .loss_chunk = loss_chunk,
          .attention_scratch = scratch(sequences).forward,
          .attention_backward_scratch = 0,
          .limits = around_.limits};
}

layout::StepShape MemoryModel::shape(const Choice& choice) const {
  layout::StepShape step = pass_shape(layout::Purpose::train, choice.micro_batch, choice.loss_chunk);
  step.levels = choice.levels;
  step.attention_backward_scratch = scratch(choice.micro_batch).backward;
  return step;
}

int64_t MemoryModel::other_slab(int64_t loss_chunk) const {
  int64_t bytes = 0;
  if (evaluates()) {
    const auto step = pass_shape(layout::Purpose::evaluate, around_.evaluation_sequences, loss_chunk);
    bytes = layout::Layout(config_.model, step).bytes();
  }
  if (samples()) {
    const auto step = pass_shape(layout::Purpose::generate, 1, loss_chunk);
    bytes = std::max(bytes, layout::Layout(config_.model, step).bytes());
  }
  return bytes;
}

bool MemoryModel::evaluates() const {
  return around_.evaluation_sequences > 0 && config_.train.eval_every > 0;
}
bool MemoryModel::samples() const { return config_.train.sample_every > 0; }

// As train::DeviceBatch: int32 rows of tokens and targets, on a GPU their order, with a document mask
// positions and boundaries; one row more is where micro-batches pass.
int64_t MemoryModel::batch_bytes(int64_t sequences, int64_t micro_batch) const {
  const int64_t parts = 2 + (around_.limits ? 1 : 0) + (config_.data.document_mask ? 1 : 0);
  const int64_t tokens = micro_batch * config_.data.context;
  const int64_t boundaries = config_.data.document_mask ? tokens / 512 + 64 : 0;
  const int64_t row = 4 * (parts * round_up(tokens, 64) + round_up(boundaries, 64));
  return ((sequences + micro_batch - 1) / micro_batch + 1) * row;
}

// Keys and values of every position, their fp32 copies of one layer while a token attends, its scores.
int64_t MemoryModel::sample_bytes() const {
  const ModelConfig& model = config_.model;
  const int64_t one =
      config_.data.context * model.kv_width() * layout::element_bytes(element(config_.train.dtype));
  const int64_t scratch = config_.data.context * (model.kv_width() + 3 * model.heads) * 4;
  const std::vector<int64_t> tensors(static_cast<size_t>(2 * model.layers), one);
  const bool rounds = around_.limits.has_value();
  return 2 * model.layers * one + scratch + (rounds ? allocator_rounding(tensors) : 0);
}

// Everything but what is in use of a slab of that size.
Bytes MemoryModel::held(int64_t micro_batch, int64_t slab) const {
  Bytes bytes;
  bytes[Kind::weights] = fixed_.weights;
  bytes[Kind::gradients] = fixed_.all_gradients();
  bytes[Kind::optimizer] = fixed_.optimizer();
  const int64_t tables = config_.data.context * config_.model.head_size() * 4;  // cosines and sines
  const int64_t batches = batch_bytes(sequences(config_), micro_batch);
  bytes[Kind::batch] = tables + batches;
  if (!around_.limits) return bytes;
  bytes[Kind::gemm_workspace] = cuda::kGemmWorkspaceBytes;
  bytes[Kind::outside] = around_.outside;
  bytes[Kind::rounding] =
      allocator_rounding({fixed_.weights, fixed_.gradients, fixed_.gradients32, fixed_.codes, fixed_.scales,
                          fixed_.states32, fixed_.master, cuda::kGemmWorkspaceBytes, batches, tables}) +
      round_up(slab, kSegment) - slab;
  return bytes;
}

int64_t MemoryModel::beside_slab(int64_t micro_batch, int64_t slab) const {
  int64_t more = outside_scratch(micro_batch);
  if (samples()) more = std::max(more, sample_bytes());
  if (evaluates()) {
    more = std::max(more, batch_bytes(around_.evaluation_sequences, around_.evaluation_sequences));
  }
  return held(micro_batch, slab).sum() + more;
}

int64_t MemoryModel::slab(const Choice& choice) const {
  return std::max(layout::Layout(config_.model, shape(choice)).bytes(), other_slab(choice.loss_chunk));
}

int64_t MemoryModel::bytes(const Choice& choice) const {
  const int64_t size = slab(choice);
  return size + beside_slab(choice.micro_batch, size);
}

MemoryUse MemoryModel::use(const Choice& choice) const {
  const layout::Layout pass(config_.model, shape(choice));
  MemoryUse use;
  use.slab = std::max(pass.bytes(), other_slab(choice.loss_chunk));
  const Bytes held = this->held(choice.micro_batch, use.slab);
  const auto moment = [&](const char* name, const Used& used) -> Bytes& {
    use.moments.push_back({.name = name, .bytes = held});
    add_slab(use.moments.back().bytes, used, use.slab);
    return use.moments.back().bytes;
  };
  moment("training pass", pass.peak().by_category)[Kind::scratch] += outside_scratch(choice.micro_batch);
  moment("update", {});
  if (evaluates()) {
    const auto step = pass_shape(layout::Purpose::evaluate, around_.evaluation_sequences, choice.loss_chunk);
    moment("evaluation", layout::Layout(config_.model, step).peak().by_category)[Kind::batch] +=
        batch_bytes(around_.evaluation_sequences, around_.evaluation_sequences);
  }
  if (samples()) {
    const auto step = pass_shape(layout::Purpose::generate, 1, choice.loss_chunk);
    moment("sample", layout::Layout(config_.model, step).peak().by_category)[Kind::cache] += sample_bytes();
  }
  moment("checkpoint", {});  // goes through host memory
  for (size_t i = 1; i < use.moments.size(); ++i) {
    if (use.moments[i].bytes.sum() > use.bytes()) use.peak = i;
  }
  return use;
}

std::vector<Point> MemoryModel::timeline(const Choice& choice) const {
  const int64_t layers = config_.model.layers;
  const layout::Layout pass(config_.model, shape(choice));
  const std::vector<Used> used = replay(pass);
  std::vector<std::string> labels(used.size(), "loss");
  const auto label = [&](Span span, const std::string& text) {
    for (int64_t i = span.first; i <= span.last; ++i) labels[static_cast<size_t>(i)] = text;
  };
  labels.front() = "embedding";
  labels.back() = "embedding backward";
  for (int64_t i = 0; i < layers; ++i) {
    label(forward_span(pass, i, layers), "layer " + std::to_string(i) + " forward");
    label(backward_span(pass, i, layers), "layer " + std::to_string(i) + " backward");
  }
  const int64_t size = std::max(pass.bytes(), other_slab(choice.loss_chunk));
  const Bytes held = this->held(choice.micro_batch, size);
  std::vector<Point> points;
  for (size_t i = 0; i < used.size(); ++i) {
    points.push_back({.operation = static_cast<int64_t>(i), .label = labels[i], .bytes = held});
    add_slab(points.back().bytes, used[i], size);
  }
  // LibTorch's own attention allocates when it runs, and its allocator keeps that.
  for (Point& point : points) point.bytes[Kind::scratch] += outside_scratch(choice.micro_batch);
  const MemoryUse whole = use(choice);
  for (size_t i = 1; i < whole.moments.size(); ++i) {
    const auto operation = static_cast<int64_t>(used.size() + i - 1);
    points.push_back(
        {.operation = operation, .label = whole.moments[i].name, .bytes = whole.moments[i].bytes});
  }
  return points;
}

}  // namespace narrowgauge::plan
