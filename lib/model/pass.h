#pragma once
#include <ATen/core/Tensor.h>

#include "lib/model/slab.h"
#include "lib/ops/attention.h"
#include "lib/ops/rope.h"

namespace narrowgauge::model {

// What all layers share while one micro-batch passes through.
struct Pass {
  ops::Attention attention;
  ops::RopeTable rope;
  at::Tensor positions;  // (tokens) int32; undefined: 0 .. context - 1 in every sequence
  double eps;            // of the norms
  const Slab* slab;      // outlives the pass
  int64_t number;        // Slab::begin's
};

// Where in a pass some code stands, and so which buffers are its own.
struct Place {
  const Pass& pass;
  int64_t layer;  // or layout::kNoLayer
  layout::Phase phase;

  [[nodiscard]] at::Tensor take(layout::Name name) const { return pass.slab->take(name, layer, phase); }
  // What the backward of a norm works in.
  [[nodiscard]] at::Tensor norm_scratch() const {
    return pass.slab->take(layout::Name::norm_scratch, layout::kNoLayer, layout::Phase::backward);
  }
};

}  // namespace narrowgauge::model
