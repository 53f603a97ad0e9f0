// Steps on the CPU.
#include <algorithm>
#include <numeric>

#include "lib/base/error.h"
#include "lib/layout/static_bytes.h"
#include "lib/train/batch.h"
#include "lib/train/graph.h"
#include "lib/train/setup.h"
#include "tests/support/catch.h"
#include "tests/train/bad_gradient.h"
#include "tests/train/gradients.h"

namespace narrowgauge::test {
namespace {

TEST_CASE("1 x 8 and 8 x 1 micro-batches give one gradient in fp32") {
  const Config config = small_config("fp32", 48);
  const at::Tensor whole = gradient(config, at::kCPU, 8);
  REQUIRE(relative_difference(gradient(config, at::kCPU, 1), whole) < 1e-6);
  REQUIRE(relative_difference(gradient(config, at::kCPU, 4), whole) < 1e-6);
}

TEST_CASE("recomputation changes no bit of the gradient") {
  Config config = small_config("fp32", 48);
  const at::Tensor kept = gradient(config, at::kCPU, 4);
  config.memory.recompute = {RecomputeLevel::block};
  REQUIRE(gradient(config, at::kCPU, 4).equal(kept));
}

TEST_CASE("static bytes are those that model and optimizer allocate") {
  for (const char* dtype : {"fp32", "bf16"}) {
    for (const char* master : {"stochastic", "split", "fp32"}) {
      Config config = small_config(dtype, 48);
      config.optim.master = master;
      config.model.qk_norm = true;
      config.model.tie_embeddings = false;
      const auto model = train::make_model(config, at::kCPU);
      const auto optimizer = train::make_optimizer(config, *model);
      const auto element = config.train.dtype == "bf16" ? layout::Element::bf16 : layout::Element::fp32;
      const layout::StaticBytes bytes = layout::static_bytes(config.model, config.optim, element, element);
      const model::ParameterArena& arena = model->arena();
      REQUIRE(bytes.weights == static_cast<int64_t>(arena.weights().nbytes()));
      REQUIRE(bytes.gradients == static_cast<int64_t>(arena.grad().nbytes()));
      REQUIRE(bytes.gradients32 == static_cast<int64_t>(arena.grad32().nbytes()));
      int64_t states = 0;
      for (const auto& [name, tensor] : optimizer->state_tensors())
        states += static_cast<int64_t>(tensor.nbytes());
      REQUIRE(bytes.optimizer() == states);
    }
  }
}

TEST_CASE("a gradient that is not finite skips the step") {
  check_bad_gradient(at::kCPU, "fp32");
  check_bad_gradient(at::kCPU, "bf16");
}

TEST_CASE("a batch is cut into pieces, whose documents end where the pieces do") {
  constexpr int64_t kContext = 8;
  std::vector<int32_t> tokens(5 * kContext);
  std::iota(tokens.begin(), tokens.end(), 0);
  std::vector<int32_t> targets(tokens.rbegin(), tokens.rend());
  data::GlobalBatch batch;
  batch.sequences = 5;
  batch.context = kContext;
  batch.tokens = tokens.data();
  batch.targets = targets.data();
  batch.positions = tokens.data();
  batch.document_starts = {{0}, {0, 3}, {0, 1, 2}, {0}, {0, 7}};
  train::DeviceBatch on_device(at::kCPU, 5, kContext, true);
  on_device.upload(batch, 5, 2);
  REQUIRE(on_device.pieces() == 3);
  const auto values = [](const at::Tensor& t) {
    const int32_t* data = t.const_data_ptr<int32_t>();
    return std::vector<int32_t>(data, data + t.numel());
  };
  const auto part = [](const std::vector<int32_t>& all, int64_t first, int64_t count) {
    return std::vector<int32_t>(all.begin() + first, all.begin() + first + count);
  };
  const void* place = nullptr;
  for (int64_t p = 0; p < 3; ++p) {
    const int64_t count = p < 2 ? 2 * kContext : kContext;
    const model::Batch piece = on_device.piece(p);
    REQUIRE(piece.tokens.sizes() == at::IntArrayRef({count / kContext, kContext}));
    REQUIRE(values(piece.tokens) == part(tokens, p * 2 * kContext, count));
    REQUIRE(values(piece.targets) == part(targets, p * 2 * kContext, count));
    REQUIRE(values(piece.positions) == part(tokens, p * 2 * kContext, count));
    REQUIRE(piece.documents.cu_seqlens.size(0) == 16);
    if (place != nullptr) REQUIRE(piece.tokens.const_data_ptr() == place);
    place = piece.tokens.const_data_ptr();
  }
  std::vector<int32_t> boundaries(16, 16);
  const std::vector<int32_t> starts = {0, 1, 2, 8};
  std::copy(starts.begin(), starts.end(), boundaries.begin());
  REQUIRE(values(on_device.piece(1).documents.cu_seqlens) == boundaries);

  // A batch of many documents has longer boundaries, the next one of few the old ones at the old place.
  auto& many = batch.document_starts[1];
  many.resize(kContext);
  std::iota(many.begin(), many.end(), 0);
  batch.document_starts[0] = many;
  on_device.upload(batch, 5, 2);
  REQUIRE(on_device.piece(2).documents.cu_seqlens.size(0) == 32);
  REQUIRE(values(on_device.piece(0).documents.cu_seqlens)[17] == 16);
  batch.document_starts[0] = {0};
  on_device.upload(batch, 5, 2);
  REQUIRE(on_device.piece(0).tokens.const_data_ptr() == place);
  REQUIRE_THROWS_AS(on_device.upload(batch, 6, 2), std::invalid_argument);
}

TEST_CASE("CUDA graphs need a GPU") {
  REQUIRE_FALSE(train::use_cuda_graphs("auto", at::kCPU));
  REQUIRE_FALSE(train::use_cuda_graphs("off", at::kCPU));
  REQUIRE(train::use_cuda_graphs("auto", at::Device(at::kCUDA, 0)));
  REQUIRE_FALSE(train::use_cuda_graphs("off", at::Device(at::kCUDA, 0)));
  REQUIRE_THROWS_AS(train::use_cuda_graphs("on", at::kCPU), UserError);
}

}  // namespace
}  // namespace narrowgauge::test
