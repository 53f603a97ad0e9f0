#pragma once
#include <torch/nn/module.h>

#include <array>
#include <map>
#include <memory>
#include <vector>

#include "lib/config/config.h"
#include "lib/layout/layout.h"
#include "lib/model/kv_cache.h"
#include "lib/model/parameters.h"
#include "lib/model/slab.h"
#include "lib/ops/attention.h"
#include "lib/ops/attention_choice.h"
#include "lib/ops/linear_cross_entropy.h"
#include "lib/ops/rope.h"

namespace narrowgauge::model {

class LayerImpl;  // lib/model/layer.h
struct Pass;      // lib/model/pass.h
struct Leaf;      // lib/model/ends.h

// One micro-batch on the model's device.
struct Batch {
  at::Tensor tokens;         // (batch, context) int32
  at::Tensor targets;        // (batch, context) int32, ops::kIgnoreIndex where not counted
  at::Tensor positions;      // (batch * context) int32; undefined: 0 .. context - 1 in every sequence
  ops::Documents documents;  // undefined cu_seqlens: attention over the whole sequence
  // (batch * context) int32: ops::token_order of the tokens, for the embedding's gradient on CUDA; undefined:
  // it is found there.
  at::Tensor order{};
};

struct TransformerOptions {
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
  int64_t max_context = 0;                                 // rows of the RoPE table
  int64_t micro_batch = 1;                                 // sequences that attention kernels are timed with
  std::vector<RecomputeLevel> recompute;                   // one a layer, or one for all; empty: block
  std::string attention = "auto";                          // train.attention, for micro_batch x max_context
  int64_t attention_workspace = ops::kAttentionWorkspace;  // memory.attention_workspace
  bool deterministic = false;
  bool document_mask = false;
  bool time_attention = true;  // false: a model that is only run; as AttentionJob::timing
  int64_t loss_chunk = 4096;   // tokens whose logits exist at once
  ops::LossOptions loss;       // vocab 0: the model's
};

// What attention is asked to do in a pass of that size.
ops::AttentionJob attention_job(const ModelConfig& config, const TransformerOptions& options, int64_t batch,
                                int64_t context);

// Decoder: embedding, layers, final norm, output projection. Parameters are views of the arena and are
// registered under their names, so parameters() and named_parameters() work as usual; the gradients of a
// backward pass are accumulated straight into the arena's gradient views. Built on its device in its dtype:
// moving it with Module::to would part it from the arena. Weights are zero until initialised or loaded. Every
// pass works in one slab: the next pass overwrites what the last one left, and a backward that comes too late
// throws std::logic_error. Any pass throws Interrupted between two parts of a layer or chunks of the loss
// when a stop request (lib/base/interruption.h) says so; what it has added to the gradients is then
// worthless.
class Transformer : public torch::nn::Module {
 public:
  // UserError: train.attention names a kernel that this device or model cannot use. std::invalid_argument:
  // the number of recompute levels is neither 1 nor the number of layers; max_context or micro_batch is not
  // positive.
  Transformer(const ModelConfig& config, const TransformerOptions& options);
  Transformer(const Transformer&) = delete;
  Transformer& operator=(const Transformer&) = delete;

  // Logits (batch * context, V), for small inputs: evaluation of golden models and tests. No gradient.
  at::Tensor forward(const at::Tensor& tokens);  // (batch, context) int32
  at::Tensor forward(const Batch& batch);        // its targets may be undefined

  // Sum of the loss over the micro-batch's counted tokens as an autograd scalar (fp32) plus by-products.
  // With gradients enabled, backward() of `loss` adds d(loss * scale) to the arena; scale is an fp32 scalar
  // tensor on the device (1 / counted tokens of the global batch). Without, nothing is kept and the z-loss is
  // left out. Forward has already added the head's share, and backward() takes the incoming gradient to be 1:
  // it runs once, on `loss` itself, before any other pass begins.
  ops::LossSums loss(const Batch& batch, const at::Tensor& scale);

  // Appends tokens (n) int32 of one sequence to the cache and returns the logits (1, V) that follow the last
  // of them. The cache is empty, or n is 1; at most max_context positions. No gradient.
  at::Tensor decode(const at::Tensor& tokens, KeyValueCache& cache);
  [[nodiscard]] KeyValueCache make_cache() const;

  // Makes the slab large enough for passes of that size. A pass that needs more lets it grow, to another
  // address: whoever keeps addresses (a captured graph) reserves before for all that will run.
  void reserve(layout::Purpose purpose, int64_t batch, int64_t context);
  [[nodiscard]] int64_t slab_bytes() const { return slab_.bytes(); }
  // Changes when a pass needs a larger slab; null before there is one.
  [[nodiscard]] const void* slab_address() const { return slab_.address(); }
  // Gives the slab's memory up and lets later passes keep what these levels (one a layer, or one for all)
  // and this loss chunk say: the same gradients to the bit with the same chunk, in less or more memory.
  void replan(const std::vector<RecomputeLevel>& levels, int64_t loss_chunk);
  // Of a pass of so many sequences of max_context.
  [[nodiscard]] ops::AttentionScratch attention_scratch(int64_t batch) const;
  // The slab as bytes, for probes of the card; its contents belong to the latest pass. Undefined: none yet.
  [[nodiscard]] at::Tensor slab_memory() const { return slab_.memory(); }
  // How a pass of that size lies in the slab.
  std::shared_ptr<const layout::Layout> layout_of(layout::Purpose purpose, int64_t batch, int64_t context);

  [[nodiscard]] ParameterArena& arena() { return arena_; }
  [[nodiscard]] const ParameterArena& arena() const { return arena_; }
  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] const TransformerOptions& options() const { return options_; }
  // Of passes with micro_batch x max_context; one of a shape that this kernel cannot do (cuDNN and a prompt
  // of one token, say) runs by flash or math.
  [[nodiscard]] const ops::AttentionChoice& attention_choice() const { return attention_; }

 private:
  [[nodiscard]] Leaf leaf(const std::string& name) const;
  [[nodiscard]] std::string head_name() const;  // the embedding's when tied
  // By the chosen kernel, or by another where that cannot do the shape (ops::usable_kernel).
  [[nodiscard]] ops::Attention attention(int64_t batch, int64_t context) const;
  std::shared_ptr<Pass> begin(layout::Purpose purpose, int64_t batch, int64_t context);
  // The final hidden state before the output projection, normalised: (batch * context, H).
  at::Tensor hidden(const Batch& batch, const std::shared_ptr<Pass>& pass);
  at::Tensor logits(const at::Tensor& hidden) const;

  ModelConfig config_;
  TransformerOptions options_;
  ops::AttentionChoice attention_;  // chosen before the arena takes its memory
  ParameterArena arena_;
  std::vector<std::shared_ptr<LayerImpl>> layers_;
  ops::RopeTable rope_;
  Slab slab_;
  // A few of those that passes used, by the arguments of layout_of.
  std::map<std::array<int64_t, 3>, std::shared_ptr<const layout::Layout>> layouts_;
};

}  // namespace narrowgauge::model
