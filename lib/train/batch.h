#pragma once
#include <array>
#include <cstdint>
#include <map>

#include "lib/data/loader.h"
#include "lib/model/transformer.h"
#include "lib/train/fence.h"

namespace narrowgauge::train {

// A global batch on the device, cut into micro-batches. All that a micro-batch needs lies in one row of
// int32, so that a step is one copy from the host and a micro-batch one on the device. After the first upload
// nothing is allocated until a batch needs longer rows than any before.
class DeviceBatch {
 public:
  // Of at most `sequences` x `context` tokens.
  DeviceBatch(at::Device device, int64_t sequences, int64_t context, bool document_mask);

  // Queues the copy of the first `sequences` of the batch, to be cut into pieces of `micro_batch` (the last
  // may be shorter). The host batch may change as soon as this returns. Waits only for the upload before the
  // last. std::invalid_argument: more sequences than there is room for, or a batch of another context.
  void upload(const data::GlobalBatch& batch, int64_t sequences, int64_t micro_batch);

  [[nodiscard]] int64_t pieces() const { return (sequences_ + micro_batch_ - 1) / micro_batch_; }
  // Queues the copy of a piece to where all pieces pass and returns views of that place, valid until the next
  // call. Pieces of as many sequences with as many boundaries have the same addresses, for ever.
  model::Batch piece(int64_t index);

 private:
  // Where the parts of a piece lie in its row: of `stride` elements each tokens, targets, order (only on
  // CUDA) and positions (only with a document mask, like the next); then the boundaries: its cu_seqlens.
  struct Row {
    int64_t stride = 0;
    int64_t boundaries = 0;
    int64_t length = 0;
  };
  struct Staging {
    at::Tensor rows;  // page-locked on CUDA
    Fence uploaded;
  };
  [[nodiscard]] int64_t sequences_of(int64_t piece) const;
  [[nodiscard]] int64_t boundaries_length(const data::GlobalBatch& batch) const;
  void fill(int32_t* row, const data::GlobalBatch& batch, int64_t piece) const;

  at::Device device_;
  int64_t most_sequences_;
  int64_t context_;
  bool document_mask_;
  std::array<Staging, 2> staging_;  // used in turn
  size_t turn_ = 0;
  at::Tensor rows_;                      // (pieces * Row::length) at least, on the device
  std::map<int64_t, at::Tensor> place_;  // where pieces pass, by Row::length
  Row row_;
  int64_t sequences_ = 0;
  int64_t micro_batch_ = 1;
};

}  // namespace narrowgauge::train
