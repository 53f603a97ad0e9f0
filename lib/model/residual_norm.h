#pragma once
#include <ATen/core/Tensor.h>

#include "lib/model/pass.h"

namespace narrowgauge::model {

// The entry of a segment: the residual stream and its norm. What is not kept is undefined.
struct ResidualNorm {
  at::Tensor input;   // the stream after the sum (tokens, H)
  at::Tensor normed;  // its norm (tokens, H)
  at::Tensor rstd;    // (tokens), fp32
};

// input = residual + delta, or residual itself when delta is undefined; then the norm.
ResidualNorm enter(const at::Tensor& residual, const at::Tensor& delta, const at::Tensor& weight,
                   const Place& place, const layout::EntryNames& names);

// Computes the norm again from `input` when it is not there, with the bits of enter().
void normalise(ResidualNorm& norm, const at::Tensor& weight, const Place& place,
               const layout::EntryNames& names);

// Backward of enter: dinput = the gradient of `input`, given d(normed) and the gradient `dresidual` that
// reaches `input` around the norm (undefined: none). It is the gradient of residual and of delta alike.
// dweight is accumulated; dinput may be dnormed. norm.normed is there afterwards, with the bits of enter().
void enter_backward(const at::Tensor& dinput, ResidualNorm& norm, const at::Tensor& weight,
                    const at::Tensor& dweight, const at::Tensor& dnormed, const at::Tensor& dresidual,
                    const Place& place, const layout::EntryNames& names);

}  // namespace narrowgauge::model
