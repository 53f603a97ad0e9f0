#include "lib/train/batch.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <stdexcept>

#include "lib/ops/token_order.h"
#include "lib/train/device.h"

namespace narrowgauge::train {
namespace {

constexpr int64_t kAlignment = 64;  // elements: every part of a row begins on 256 bytes

int64_t round_up(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

}  // namespace

DeviceBatch::DeviceBatch(at::Device device, int64_t sequences, int64_t context, bool document_mask)
    : device_(device),
      most_sequences_(sequences),
      context_(context),
      document_mask_(document_mask),
      staging_{Staging{.rows = {}, .uploaded = Fence(device)},
               Staging{.rows = {}, .uploaded = Fence(device)}} {}

void DeviceBatch::upload(const data::GlobalBatch& batch, int64_t sequences, int64_t micro_batch) {
  if (sequences > most_sequences_ || batch.context != context_) {
    throw std::invalid_argument("the batch does not fit the place made for it");
  }
  sequences_ = sequences;
  micro_batch_ = micro_batch;
  const int64_t parts = 2 + (device_.is_cuda() ? 1 : 0) + (document_mask_ ? 1 : 0);
  row_.stride = round_up(micro_batch * context_, kAlignment);
  row_.boundaries = document_mask_ ? boundaries_length(batch) : 0;
  row_.length = parts * row_.stride + round_up(row_.boundaries, kAlignment);
  const int64_t count = pieces() * row_.length;

  Staging& staging = staging_[turn_];
  turn_ = 1 - turn_;
  staging.uploaded.wait();
  if (!staging.rows.defined() || staging.rows.numel() < count) {
    staging.rows = host_tensor({count}, at::kInt, device_);
  }
  auto* rows = staging.rows.mutable_data_ptr<int32_t>();
  for (int64_t p = 0; p < pieces(); ++p) fill(rows + p * row_.length, batch, p);
  if (!rows_.defined() || rows_.numel() < count) {
    rows_ = at::empty({count}, at::TensorOptions(at::kInt).device(device_));
  }
  rows_.narrow(0, 0, count).copy_(staging.rows.narrow(0, 0, count), /*non_blocking=*/true);
  staging.uploaded.record();
}

int64_t DeviceBatch::sequences_of(int64_t piece) const {
  return std::min(micro_batch_, sequences_ - piece * micro_batch_);
}

// One for all pieces of a batch, which depends on that batch alone: attention may add in another order when
// it changes, and a resumed run must not. As short as that allows, since each entry costs attention scratch;
// of few different values, since each costs a captured graph.
int64_t DeviceBatch::boundaries_length(const data::GlobalBatch& batch) const {
  size_t most = 0;
  for (int64_t p = 0; p < pieces(); ++p) {
    size_t documents = 0;
    for (int64_t s = p * micro_batch_; s < p * micro_batch_ + sequences_of(p); ++s) {
      documents += batch.document_starts[static_cast<size_t>(s)].size();
    }
    most = std::max(most, documents);
  }
  int64_t length = ops::usual_boundaries(micro_batch_, context_);
  while (length < static_cast<int64_t>(most) + 1) length *= 2;
  return length;
}

void DeviceBatch::fill(int32_t* row, const data::GlobalBatch& batch, int64_t piece) const {
  const int64_t first = piece * micro_batch_;
  const int64_t sequences = sequences_of(piece);
  const int64_t count = sequences * context_;
  const int32_t* tokens = batch.tokens + first * context_;
  std::copy_n(tokens, count, row);
  std::copy_n(batch.targets + first * context_, count, row += row_.stride);
  if (device_.is_cuda()) ops::token_order(tokens, count, row += row_.stride);
  if (!document_mask_) return;
  std::copy_n(batch.positions + first * context_, count, row += row_.stride);
  int32_t* end = row += row_.stride;
  for (int64_t s = 0; s < sequences; ++s) {
    for (const int32_t start : batch.document_starts[static_cast<size_t>(first + s)]) {
      *end++ = static_cast<int32_t>(s * context_) + start;
    }
  }
  std::fill(end, row + row_.boundaries, static_cast<int32_t>(count));
}

model::Batch DeviceBatch::piece(int64_t index) {
  at::Tensor& place = place_[row_.length];
  if (!place.defined()) place = at::empty({row_.length}, at::TensorOptions(at::kInt).device(device_));
  place.copy_(rows_.narrow(0, index * row_.length, row_.length), /*non_blocking=*/true);
  const int64_t sequences = sequences_of(index);
  const int64_t count = sequences * context_;
  int64_t begin = -row_.stride;
  const auto next = [&](int64_t length) { return place.narrow(0, begin += row_.stride, length); };
  model::Batch batch{.tokens = next(count).view({sequences, context_}),
                     .targets = next(count).view({sequences, context_}),
                     .positions = {},
                     .documents = {}};
  if (device_.is_cuda()) batch.order = next(count);
  if (document_mask_) {
    batch.positions = next(count);
    batch.documents.cu_seqlens = next(row_.boundaries);
  }
  return batch;
}

}  // namespace narrowgauge::train
