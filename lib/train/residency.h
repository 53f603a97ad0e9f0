#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "lib/model/transformer.h"
#include "lib/optim/optimizer.h"

namespace narrowgauge::train {

inline constexpr int64_t kProbePiece = int64_t{64} << 20;  // bytes

// Speeds of reading device memory piece by piece.
struct CopySpeeds {
  std::vector<double> bytes_per_second;  // of each piece
  int64_t piece_bytes = 0;

  [[nodiscard]] double median() const;
};

// Reads all of `buffers` (dense, on one GPU; the stream's queued work comes first) in pieces of kProbePiece
// and waits for it. Nothing is written but `target`, a buffer on that GPU of at least kProbePiece bytes,
// whose contents are lost.
CopySpeeds read_speeds(const std::vector<at::Tensor>& buffers, const at::Tensor& target);

// The same of all that a training run keeps on the device, between two steps: what is in the model's slab is
// lost. No speeds when the slab has no room for a piece.
CopySpeeds read_resident(const model::Transformer& model, const optim::Optimizer& optimizer);

// Whether what should lie in the card's memory does. Under WSL2 and Windows the driver moves memory to the
// host without an error when other programs want the card: every access then crosses the bus, at a tenth of
// the speed or less.
class Residency {
 public:
  using Probe = std::function<CopySpeeds()>;
  explicit Residency(Probe probe) : probe_(std::move(probe)) {}

  // Takes the usual speed, when everything is where it belongs.
  void calibrate();
  // Bytes in pieces slower than kSpilled times the usual; 0 before calibrate().
  [[nodiscard]] int64_t spilled_bytes() const;

 private:
  static constexpr double kSpilled = 0.3;

  Probe probe_;
  double usual_ = 0;
};

}  // namespace narrowgauge::train
