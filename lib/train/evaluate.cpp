#include "lib/train/evaluate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "lib/data/loader.h"
#include "lib/ops/cross_entropy.h"
#include "lib/train/batch.h"

namespace narrowgauge::train {

int64_t evaluation_windows(int64_t context) {
  constexpr int64_t kTokensAtOnce = 4096;
  return std::max<int64_t>(1, kTokensAtOnce / context);
}

double Evaluation::perplexity() const { return std::exp(loss); }

Evaluation evaluate(model::Transformer& model, const TokenRange& tokens, const DataConfig& data,
                    int32_t end_of_document, int64_t max_tokens) {
  const at::NoGradGuard no_grad;
  const at::Device device = model.options().device;
  const data::Sampler sampler(tokens.range, data.context, /*seed=*/0, /*shuffle=*/false);
  const int64_t windows = std::clamp<int64_t>(max_tokens / data.context, 1, sampler.samples_per_epoch());
  const int64_t at_once = std::min(windows, evaluation_windows(data.context));
  data::Loader loader(tokens.dataset, sampler,
                      {.sequences = at_once,
                       .context = data.context,
                       .document_mask = data.document_mask,
                       .end_of_document = end_of_document,
                       .prefetch = 1,
                       .first_step = 0});
  DeviceBatch on_device(device, at_once, data.context, data.document_mask);
  const at::Tensor one = at::full({}, 1.0, at::TensorOptions().dtype(at::kFloat).device(device));
  at::Tensor sum = at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(device));
  Evaluation result;
  for (int64_t done = 0; done < windows; done += at_once) {
    const int64_t count = std::min(at_once, windows - done);
    const data::GlobalBatch& batch = loader.next();
    on_device.upload(batch, count, count);
    const model::Batch piece = on_device.piece(0);
    sum.add_(model.loss(piece, one).loss);
    const int32_t* const targets = batch.targets;
    result.tokens += std::count_if(targets, targets + count * data.context,
                                   [](int32_t id) { return id != ops::kIgnoreIndex; });
  }
  result.loss = sum.item<double>() / static_cast<double>(std::max<int64_t>(1, result.tokens));
  return result;
}

}  // namespace narrowgauge::train
