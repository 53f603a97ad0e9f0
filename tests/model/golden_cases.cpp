#include <ATen/Functions.h>
#include <ATen/core/Reduction.h>

#include <filesystem>

#include "lib/io/hugging_face.h"
#include "lib/io/hugging_face_parts.h"
#include "lib/ops/cross_entropy.h"
#include "tests/model/cases.h"
#include "tests/model/reference_model.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"

namespace narrowgauge::test {
namespace {

namespace fs = std::filesystem;

struct Golden {
  std::unique_ptr<model::Transformer> model;
  model::Batch batch;
  at::Tensor logits;  // (tokens, V)
  double loss;
  std::map<std::string, at::Tensor> gradients;  // under their names
};

double mean_loss(const at::Tensor& logits, const at::Tensor& targets) {
  const at::Tensor flat = targets.reshape({-1}).to(at::kLong);
  return at::cross_entropy_loss(logits.to(at::kDouble), flat, {}, at::Reduction::Mean, ops::kIgnoreIndex)
      .item<double>();
}

// Labels are targets already, or, as transformers takes them, shifted inside the loss: position t predicts
// labels[t + 1], the last one nothing. The file's own logits and loss tell which.
at::Tensor targets_of(const at::Tensor& labels, const at::Tensor& logits, double loss) {
  const at::Tensor shifted = at::full_like(labels, ops::kIgnoreIndex);
  shifted.slice(1, 0, -1).copy_(labels.slice(1, 1));
  for (const at::Tensor& targets : {labels, shifted}) {
    if (std::abs(mean_loss(logits, targets) - loss) < 1e-5) return targets.to(at::kInt);
  }
  FAIL("the loss in io.safetensors follows neither from its labels nor from its shifted labels");
  return {};
}

Golden load(const fs::path& folder, const Where& where) {
  Golden golden;
  const ModelConfig config = io::read_hugging_face_config(folder);
  const io::SafetensorsFile io(folder / "io.safetensors");
  const at::Tensor tokens = io.read("input_ids").to(at::kInt);

  model::TransformerOptions options;
  options.dtype = where.dtype;
  options.device = where.device;
  options.max_context = tokens.size(1);
  options.recompute = {RecomputeLevel::block};
  options.loss_chunk = 37;
  golden.model = std::make_unique<model::Transformer>(config, options);
  std::vector<io::NamedTensor> parameters;
  for (const model::ParameterSlot& slot : golden.model->arena().slots()) {
    parameters.emplace_back(slot.spec.name, golden.model->arena().weight(slot));
  }
  io::import_hugging_face(folder, config, parameters);
  golden.model->arena().allocate_gradients(at::kFloat);

  golden.logits = io.read("logits").flatten(0, 1);
  golden.loss = io.read("loss").item<double>();
  const at::Tensor targets = targets_of(io.read("labels"), golden.logits, golden.loss);
  golden.batch = {.tokens = tokens.to(where.device),
                  .targets = targets.to(where.device),
                  .positions = {},
                  .documents = {}};
  const io::SafetensorsFile gradients(folder / "grads.safetensors");
  for (const auto& [name, info] : gradients.tensors()) golden.gradients[name] = gradients.read(name);
  return golden;
}

// Ours under their names.
std::map<std::string, at::Tensor> their_names(const ModelConfig& config,
                                              const std::map<std::string, at::Tensor>& gradients) {
  const std::vector<io::NamedTensor> named(gradients.begin(), gradients.end());
  std::map<std::string, at::Tensor> result;
  for (const io::HuggingFacePart& part : io::hugging_face_parts(config)) {
    result[part.name] = io::view_of(part, named);
  }
  return result;
}

}  // namespace

void check_golden(const at::Device& device) {
  for (const fs::path& folder : golden_folders()) {
    INFO(folder.string());
    const Golden golden = load(folder, {device, at::kFloat});
    const at::Tensor logits = golden.model->forward(golden.batch.tokens).to(at::kCPU);
    CHECK((logits - golden.logits).abs().max().item<double>() < 1e-4);
    const Result result = train_pass(*golden.model, golden.batch);
    CHECK(std::abs(result.loss.item<double>() - golden.loss) < 1e-5);
    const auto ours = their_names(golden.model->config(), result.gradients);
    CHECK(ours.size() == golden.gradients.size());
    for (const auto& [name, gradient] : golden.gradients) {
      INFO(name);
      CHECK(cosine(ours.at(name), gradient) > 0.99999);
      CHECK(relative_error(ours.at(name), gradient) < 1e-3);
    }
  }
}

void check_golden_bf16(const at::Device& device) {
  for (const fs::path& folder : golden_folders()) {
    INFO(folder.string());
    const Golden golden = load(folder, {device, at::kBFloat16});
    const ReferenceModel reference(*golden.model, device, at::kBFloat16);
    const double plain_logits = relative_error(reference.logits(golden.batch).detach(), golden.logits);
    CHECK(relative_error(golden.model->forward(golden.batch.tokens), golden.logits) < 2 * plain_logits);
    const ModelConfig& config = golden.model->config();
    const Result plain = reference.train_pass(golden.batch);
    const Result result = train_pass(*golden.model, golden.batch);
    const double plain_error = relative_error(their_names(config, plain.gradients), golden.gradients);
    const double error = relative_error(their_names(config, result.gradients), golden.gradients);
    INFO("gradient error " << error << ", of the plain model " << plain_error);
    CHECK(error < 2 * plain_error);
    CHECK(error < 0.05);
    CHECK(std::abs(result.loss.item<double>() - golden.loss) <
          2 * std::abs(plain.loss.item<double>() - golden.loss) + 1e-3 * golden.loss);
  }
}

}  // namespace narrowgauge::test
