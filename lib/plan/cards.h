#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cuda/device_limits.h"

namespace narrowgauge::plan {

// How fast kernels are on a card, as fractions of its own limits.
struct Efficiency {
  double products;           // of the bf16 rate, by products that fill every wave of tiles
  double attention_forward;  // of the bf16 rate, before what head_size and context take
  double attention_backward;
};

// A card as its maker describes it.
struct Card {
  std::string_view name;  // as the driver says it, without "NVIDIA "
  double teraflops;       // dense bf16 products accumulated in fp32
  double gibibytes;       // of memory
  double gigabytes_per_second;
  int sm_count;
  int compute_major;
  int compute_minor;
  bool any_suffix = false;  // memory size and form factor follow the name: longer names are listed before

  [[nodiscard]] double flops() const { return teraflops * 1e12; }
  [[nodiscard]] double bandwidth() const { return gigabytes_per_second * 1e9; }
  [[nodiscard]] int64_t bytes() const;
  [[nodiscard]] bool is_geforce() const { return name.starts_with("GeForce"); }
  // What kernels ask a card for (cuda/device_limits.h), by its compute capability.
  [[nodiscard]] cuda::DeviceLimits limits() const;
  [[nodiscard]] Efficiency efficiency() const;
};

// The card whose driver says `name` ("NVIDIA GeForce RTX 5080"); nullptr when it is not in the table (laptop
// parts share names with desktop cards but not their rate, so names must match in full).
const Card* find_card(std::string_view name);

// The card that a person means: "RTX 5080", "rtx5080", "5080", "4060 Ti 16 GB". UserError with the nearest
// name for a card that is not in the table.
const Card& named_card(const std::string& text);

// The card's rate in dense bf16 matrix products accumulated in fp32, in FLOP/s: what MFU is measured against.
// Nothing for a card that find_card does not know. GeForce cards run at half their advertised
// fp16-accumulate rate; sparsity is never counted.
std::optional<double> card_bf16_rate(std::string_view name);

}  // namespace narrowgauge::plan
