#pragma once
#include <optional>
#include <string_view>

namespace narrowgauge::train {

// The card's rate in dense bf16 matrix products accumulated in fp32, in FLOP/s: what MFU is measured against.
// `name` as the driver says it ("NVIDIA GeForce RTX 5080"). Nothing for a card that is not in the table
// (laptop parts share names with desktop cards but not their rate, so names must match in full). GeForce
// cards run at half their advertised fp16-accumulate rate; sparsity is never counted.
std::optional<double> card_bf16_rate(std::string_view name);

}  // namespace narrowgauge::train
