#pragma once
#include <ATen/core/Tensor.h>

#include "lib/model/layer.h"
#include "lib/ops/linear_cross_entropy.h"

namespace narrowgauge::model {

// The two ends of the model as autograd functions; without gradients they are plain calls that keep nothing.
// A leaf is an input only so that autograd reaches the function: the gradient is accumulated into `gradient`
// instead. All tensors come from the pass's slab.
struct Leaf {
  at::Tensor parameter;
  at::Tensor gradient;  // undefined only without gradients
};

// (tokens, H) rows of the embedding; `order` as in ops::embedding_backward, undefined when there is none.
at::Tensor embed(const Leaf& embedding, const at::Tensor& tokens, const at::Tensor& order,
                 const std::shared_ptr<const Pass>& pass);

// The final norm of residual + delta: (tokens, H).
at::Tensor final_norm(const Leaf& norm, const Stream& stream, const std::shared_ptr<const Pass>& pass);

// Output projection and loss; see ops::linear_cross_entropy. With gradients enabled, forward has already
// accumulated the head's gradient and overwritten `hidden` with its own: backward of LossSums::loss takes its
// own gradient to be 1, and dropping the loss without a backward leaves the head's share in the arena.
ops::LossSums head_loss(const Leaf& head, const at::Tensor& hidden, const at::Tensor& targets,
                        const at::Tensor& scale, const ops::LossOptions& options,
                        const std::shared_ptr<const Pass>& pass);

}  // namespace narrowgauge::model
