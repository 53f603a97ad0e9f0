#include "lib/train/cards.h"

namespace narrowgauge::train {
namespace {

struct Card {
  std::string_view name;
  double teraflops;
  bool any_suffix =
      false;  // memory size and form factor follow the name ("H200 NVL" is listed before "H200")
};

// GeForce and RTX workstation cards: multiprocessors x boost clock x 512 (GeForce) or 1024 FLOP, which is
// what NVIDIA's architecture whitepapers list as "FP16 tensor with FP32 accumulate, dense". Data-centre
// cards: their data sheets' dense bf16 rate, which already accumulates in fp32.
constexpr Card kCards[] = {
    {"GeForce RTX 3060", 25.5},
    {"GeForce RTX 3060 Ti", 32.4},
    {"GeForce RTX 3070", 40.6},
    {"GeForce RTX 3070 Ti", 43.5},
    {"GeForce RTX 3080", 59.5},
    {"GeForce RTX 3080 Ti", 68.2},
    {"GeForce RTX 3090", 71.2},
    {"GeForce RTX 3090 Ti", 80.0},
    {"GeForce RTX 4060", 30.2},
    {"GeForce RTX 4060 Ti", 44.1},
    {"GeForce RTX 4070", 58.3},
    {"GeForce RTX 4070 SUPER", 71.0},
    {"GeForce RTX 4070 Ti", 80.2},
    {"GeForce RTX 4070 Ti SUPER", 88.2},
    {"GeForce RTX 4080", 97.5},
    {"GeForce RTX 4080 SUPER", 104.4},
    {"GeForce RTX 4090", 165.2},
    {"GeForce RTX 5060", 38.4},
    {"GeForce RTX 5060 Ti", 47.4},
    {"GeForce RTX 5070", 61.7},
    {"GeForce RTX 5070 Ti", 87.9},
    {"GeForce RTX 5080", 112.6},
    {"GeForce RTX 5090", 209.5},
    {"RTX A6000", 154.8},
    {"RTX 6000 Ada Generation", 364.2},
    {"A10", 125.0},
    {"A40", 149.7},
    {"L4", 121.0},
    {"L40", 181.0},
    {"L40S", 362.0},
    {"A100", 312.0, true},
    {"H100 PCIe", 756.0},
    {"H100 NVL", 835.5},
    {"H100", 989.4, true},
    {"H200 NVL", 835.5},
    {"H200", 989.4, true},
};

bool matches(const Card& card, std::string_view name) {
  if (name == card.name) return true;
  return card.any_suffix && name.starts_with(card.name) &&
         (name[card.name.size()] == ' ' || name[card.name.size()] == '-');
}

}  // namespace

std::optional<double> card_bf16_rate(std::string_view name) {
  constexpr std::string_view kMaker = "NVIDIA ";
  if (name.starts_with(kMaker)) name.remove_prefix(kMaker.size());
  for (const Card& card : kCards) {
    if (matches(card, name)) return card.teraflops * 1e12;
  }
  return std::nullopt;
}

}  // namespace narrowgauge::train
