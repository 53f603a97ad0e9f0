#pragma once
#include <cstdint>

#include "lib/data/loader.h"
#include "lib/model/transformer.h"
#include "lib/train/fence.h"

namespace narrowgauge::train {

// A global batch on the device, cut into micro-batches.
class DeviceBatch {
 public:
  // Room for `sequences` x `context` tokens.
  DeviceBatch(at::Device device, int64_t sequences, int64_t context, bool document_mask);

  // Queues the copies of the first `sequences` of the batch, to be cut into pieces of `micro_batch` (the last
  // may be shorter). The host batch must stay as it is until `wait` returns.
  void upload(const data::GlobalBatch& batch, int64_t sequences, int64_t micro_batch);
  void wait() const { fence_.wait(); }

  [[nodiscard]] int64_t pieces() const { return (sequences_ + micro_batch_ - 1) / micro_batch_; }
  [[nodiscard]] model::Batch piece(int64_t index) const;

 private:
  void upload_documents(const data::GlobalBatch& batch);

  at::Device device_;
  int64_t context_;
  at::Tensor tokens_;
  at::Tensor targets_;
  at::Tensor positions_;   // only with a document mask, like the next two
  at::Tensor boundaries_;  // (pieces, length): cu_seqlens of every piece
  at::Tensor boundaries_host_;
  int64_t sequences_ = 0;
  int64_t micro_batch_ = 1;
  Fence fence_;
};

}  // namespace narrowgauge::train
