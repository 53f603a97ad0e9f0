#include "lib/train/batch.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "lib/train/device.h"

namespace narrowgauge::train {
namespace {

at::Tensor view_host(int32_t* data, int64_t count) { return at::from_blob(data, {count}, at::kInt); }

}  // namespace

DeviceBatch::DeviceBatch(at::Device device, int64_t sequences, int64_t context, bool document_mask)
    : device_(device), context_(context), fence_(device) {
  const auto options = at::TensorOptions().dtype(at::kInt).device(device);
  tokens_ = at::empty({sequences, context}, options);
  targets_ = at::empty({sequences, context}, options);
  if (document_mask) positions_ = at::empty({sequences * context}, options);
}

void DeviceBatch::upload(const data::GlobalBatch& batch, int64_t sequences, int64_t micro_batch) {
  sequences_ = sequences;
  micro_batch_ = micro_batch;
  const int64_t count = sequences * context_;
  const auto copy = [&](const at::Tensor& out, int32_t* host) {
    out.view(-1).narrow(0, 0, count).copy_(view_host(host, count), /*non_blocking=*/true);
  };
  copy(tokens_, batch.tokens);
  copy(targets_, batch.targets);
  if (positions_.defined()) {
    copy(positions_, batch.positions);
    upload_documents(batch);
  }
  fence_.record();
}

// Every piece's row has the same length, which depends on nothing but the batch: a multiple of 16, since each
// entry costs attention scratch.
void DeviceBatch::upload_documents(const data::GlobalBatch& batch) {
  size_t most = 0;
  for (int64_t p = 0; p < pieces(); ++p) {
    size_t documents = 0;
    for (int64_t s = p * micro_batch_; s < std::min(sequences_, (p + 1) * micro_batch_); ++s) {
      documents += batch.document_starts[static_cast<size_t>(s)].size();
    }
    most = std::max(most, documents);
  }
  const auto length = static_cast<int64_t>((most + 16) / 16 * 16);
  boundaries_host_ = host_tensor({pieces(), length}, at::kInt, device_);
  for (int64_t p = 0; p < pieces(); ++p) {
    const int64_t first = p * micro_batch_;
    const int64_t last = std::min(sequences_, first + micro_batch_);
    int32_t* row = boundaries_host_.mutable_data_ptr<int32_t>() + p * length;
    int32_t* end = row;
    for (int64_t s = first; s < last; ++s) {
      for (const int32_t start : batch.document_starts[static_cast<size_t>(s)]) {
        *end++ = static_cast<int32_t>((s - first) * context_) + start;
      }
    }
    std::fill(end, row + length, static_cast<int32_t>((last - first) * context_));
  }
  boundaries_ = boundaries_host_.to(device_, /*non_blocking=*/true);
}

model::Batch DeviceBatch::piece(int64_t index) const {
  const int64_t first = index * micro_batch_;
  const int64_t count = std::min(micro_batch_, sequences_ - first);
  model::Batch batch{.tokens = tokens_.narrow(0, first, count),
                     .targets = targets_.narrow(0, first, count),
                     .positions = {},
                     .documents = {}};
  if (positions_.defined()) {
    batch.positions = positions_.narrow(0, first * context_, count * context_);
    batch.documents.cu_seqlens = boundaries_.select(0, index);
  }
  return batch;
}

}  // namespace narrowgauge::train
