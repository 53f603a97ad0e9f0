#include "lib/model/generate.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <stdexcept>

#include "lib/model/sampling.h"

namespace narrowgauge::model {
namespace {

at::Tensor token_tensor(std::span<const int32_t> tokens, at::Device device) {
  return at::tensor(c10::ArrayRef<int32_t>(tokens.data(), tokens.size()), at::kInt).to(device);
}

}  // namespace

std::vector<int32_t> generate(Transformer& model, const std::vector<int32_t>& prompt,
                              const SampleOptions& options, const std::function<void(int32_t)>& on_token) {
  if (prompt.empty()) throw std::invalid_argument("generation needs a prompt of at least one token");
  const auto limit = static_cast<size_t>(model.options().max_context);
  const at::Device device = model.options().device;
  const auto ends_document = [&](int32_t token) {
    return model.options().document_mask && token == options.end_of_document;
  };
  // The tokens in the cache; its oldest half goes when it is full, all of it with a new document.
  const auto last_end = std::find_if(prompt.rbegin() + 1, prompt.rend(), ends_document);
  const auto length = std::min(static_cast<size_t>(last_end - prompt.rbegin()), limit);
  std::vector<int32_t> window(prompt.end() - static_cast<std::ptrdiff_t>(length), prompt.end());
  KeyValueCache cache = model.make_cache();
  at::Tensor logits = model.decode(token_tensor(window, device), cache);
  std::vector<int32_t> drawn;
  while (static_cast<int64_t>(drawn.size()) < options.max_tokens) {
    const at::Tensor row = logits.to(at::kCPU, at::kFloat).contiguous();
    const std::span<const float> values(row.const_data_ptr<float>(), static_cast<size_t>(row.numel()));
    const int32_t token = draw_token(values, options, drawn.size());
    drawn.push_back(token);
    if (on_token) on_token(token);
    if (token == options.stop_token || static_cast<int64_t>(drawn.size()) == options.max_tokens) break;
    const bool anew = ends_document(window.back());
    if (anew || window.size() == limit) {
      const size_t dropped = anew ? window.size() : (limit + 1) / 2;
      window.erase(window.begin(), window.begin() + static_cast<std::ptrdiff_t>(dropped));
      window.push_back(token);
      cache.length = 0;
      logits = model.decode(token_tensor(window, device), cache);
    } else {
      window.push_back(token);
      logits = model.decode(token_tensor({&window.back(), 1}, device), cache);
    }
  }
  return drawn;
}

}  // namespace narrowgauge::model
