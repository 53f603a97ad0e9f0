#pragma once
#include <cstdint>

namespace narrowgauge::layout {

// Every buffer of a pass through the model. A layer has its own of each; those of the ends belong to no
// layer.
enum class Name : uint8_t {
  // attention segment
  attention_input,   // the residual stream, of layer 0 the embedding's rows
  attention_normed,  // its norm
  attention_rstd,
  qkv_raw,  // QK-norm: before norm and RoPE
  qk_raw,   // QK-norm: queries and keys of qkv_raw, when qkv is kept as well
  query_rstd,
  key_rstd,
  qkv,  // after RoPE
  attended,
  lse,  // attention's log-sum-exp
  attention_scratch,
  attention_delta,  // the segment's output
  // feed-forward segment
  ffn_input,
  ffn_normed,
  ffn_rstd,
  gate_up,  // backward turns it into its gradient
  product,
  ffn_delta,
  // gradients
  dproduct,
  dmiddle,  // of ffn_input
  dattended,
  dqkv,
  attention_backward_scratch,
  dinput,  // of attention_input
  // ends
  final_input,
  final_normed,  // the loss turns it into its gradient
  final_rstd,
  losses,    // a token's
  loss_lse,  // a token's
  loss_sums,
  logits,  // of one chunk
  dfinal,  // gradient of final_input
  norm_scratch,
};
inline constexpr int kNames = static_cast<int>(Name::norm_scratch) + 1;
const char* buffer_name(Name name);

inline constexpr int64_t kNoLayer = -1;

enum class Phase : uint8_t { forward, backward };
enum class Element : uint8_t { bf16, fp32, byte };
constexpr int64_t element_bytes(Element element) {
  return element == Element::byte ? 1 : element == Element::bf16 ? 2 : 4;
}

// Elements of a row of at least `columns` that fills whole 16 bytes: the products and the cross-entropy
// kernel are fast on such rows alone.
constexpr int64_t padded_row(int64_t columns, int64_t bytes_of_one) {
  const int64_t lanes = 16 / bytes_of_one;
  return (columns + lanes - 1) / lanes * lanes;
}

// saved: written in forward, last read in backward.
enum class Category : uint8_t { saved, temporary, loss, workspace };
inline constexpr int kCategories = 4;

// Numbers count elements.
struct Shape {
  int64_t rows;
  int64_t columns;  // 0: a vector of `rows`
  int64_t stride;   // from row to row; >= columns
  Element element;

  [[nodiscard]] int64_t bytes() const { return rows * stride * element_bytes(element); }
};

// One buffer of a step: what it is, when it is in use, where it lies in the slab. A name may occur twice in a
// layer, opened in forward and, for what is recomputed, in backward.
struct Buffer {
  Name name;
  int64_t layer;  // or kNoLayer
  Phase phase;    // in which it is opened
  Shape shape;
  Category category;
  int64_t first;  // operation that first uses it, counted from the beginning of the step
  int64_t last;   // and the last one
  int64_t offset = 0;
};

// The buffers of a segment's entry.
struct EntryNames {
  Name input;
  Name normed;
  Name rstd;
};
inline constexpr EntryNames kAttentionEntry{Name::attention_input, Name::attention_normed,
                                            Name::attention_rstd};
inline constexpr EntryNames kFeedForwardEntry{Name::ffn_input, Name::ffn_normed, Name::ffn_rstd};
inline constexpr EntryNames kFinalEntry{Name::final_input, Name::final_normed, Name::final_rstd};

}  // namespace narrowgauge::layout
