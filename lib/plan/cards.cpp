#include "lib/plan/cards.h"

#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/text.h"

namespace narrowgauge::plan {
namespace {

// Rates of GeForce and RTX workstation cards: multiprocessors x boost clock x 512 (GeForce) or 1024 FLOP,
// which is what NVIDIA's architecture whitepapers list as "FP16 tensor with FP32 accumulate, dense".
// Data-centre cards: their data sheets' dense bf16 rate, which already accumulates in fp32. Memory,
// bandwidth and multiprocessors: data sheets.
constexpr Card kCards[] = {
    {"GeForce RTX 3060", 25.5, 12, 360, 28, 8, 6},
    {"GeForce RTX 3060 Ti", 32.4, 8, 448, 38, 8, 6},
    {"GeForce RTX 3070", 40.6, 8, 448, 46, 8, 6},
    {"GeForce RTX 3070 Ti", 43.5, 8, 608, 48, 8, 6},
    {"GeForce RTX 3080", 59.5, 10, 760, 68, 8, 6},
    {"GeForce RTX 3080 Ti", 68.2, 12, 912, 80, 8, 6},
    {"GeForce RTX 3090", 71.2, 24, 936, 82, 8, 6},
    {"GeForce RTX 3090 Ti", 80.0, 24, 1008, 84, 8, 6},
    {"GeForce RTX 4060", 30.2, 8, 272, 24, 8, 9},
    {"GeForce RTX 4060 Ti", 44.1, 8, 288, 34, 8, 9},
    {"GeForce RTX 4060 Ti 16GB", 44.1, 16, 288, 34, 8, 9},
    {"GeForce RTX 4070", 58.3, 12, 504, 46, 8, 9},
    {"GeForce RTX 4070 SUPER", 71.0, 12, 504, 56, 8, 9},
    {"GeForce RTX 4070 Ti", 80.2, 12, 504, 60, 8, 9},
    {"GeForce RTX 4070 Ti SUPER", 88.2, 16, 672, 66, 8, 9},
    {"GeForce RTX 4080", 97.5, 16, 717, 76, 8, 9},
    {"GeForce RTX 4080 SUPER", 104.4, 16, 736, 80, 8, 9},
    {"GeForce RTX 4090", 165.2, 24, 1008, 128, 8, 9},
    {"GeForce RTX 5060", 38.4, 8, 448, 30, 12, 0},
    {"GeForce RTX 5060 Ti", 47.4, 8, 448, 36, 12, 0},
    {"GeForce RTX 5060 Ti 16GB", 47.4, 16, 448, 36, 12, 0},
    {"GeForce RTX 5070", 61.7, 12, 672, 48, 12, 0},
    {"GeForce RTX 5070 Ti", 87.9, 16, 896, 70, 12, 0},
    {"GeForce RTX 5080", 112.6, 16, 960, 84, 12, 0},
    {"GeForce RTX 5090", 209.5, 32, 1792, 170, 12, 0},
    {"RTX A6000", 154.8, 48, 768, 84, 8, 6},
    {"RTX 6000 Ada Generation", 364.2, 48, 960, 142, 8, 9},
    {"A10", 125.0, 24, 600, 72, 8, 6},
    {"A40", 149.7, 48, 696, 84, 8, 6},
    {"L4", 121.0, 24, 300, 58, 8, 9},
    {"L40", 181.0, 48, 864, 142, 8, 9},
    {"L40S", 362.0, 48, 864, 142, 8, 9},
    {"A100-SXM4-40GB", 312.0, 40, 1555, 108, 8, 0},
    {"A100-PCIE-40GB", 312.0, 40, 1555, 108, 8, 0},
    {"A100", 312.0, 80, 2039, 108, 8, 0, true},
    {"H100 PCIe", 756.0, 80, 2039, 114, 9, 0},
    {"H100 NVL", 835.5, 94, 3938, 132, 9, 0},
    {"H100", 989.4, 80, 3352, 132, 9, 0, true},
    {"H200 NVL", 835.5, 140, 4800, 132, 9, 0},
    {"H200", 989.4, 140, 4800, 132, 9, 0, true},
};

bool matches(const Card& card, std::string_view name) {
  if (name == card.name) return true;
  return card.any_suffix && name.starts_with(card.name) &&
         (name[card.name.size()] == ' ' || name[card.name.size()] == '-');
}

// Small letters and digits, without the words that every name has.
std::string essence(std::string_view text) {
  std::string plain;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  for (const std::string_view word : {"nvidia", "geforce", "rtx"}) {
    if (const size_t at = plain.find(word); at != std::string::npos) plain.erase(at, word.size());
  }
  return plain;
}

}  // namespace

int64_t Card::bytes() const { return std::llround(gibibytes * 1073741824.0); }

cuda::DeviceLimits Card::limits() const {
  const bool large = compute_major == 9 || (compute_major == 8 && compute_minor == 0);
  const int shared = compute_major == 9 ? 232448 : large ? 166912 : 101376;
  return {.sm_count = sm_count,
          .shared_bytes_per_block = shared,
          .max_threads_per_sm = large ? 2048 : 1536,
          .compute_major = compute_major,
          .compute_minor = compute_minor};
}

// Data-centre cards: fitted to a step of 977M parameters on an H200 (README, Measured). GeForce cards: not
// measured here. Their bf16 rate is small for their bandwidth and they reach more of it: LLMQ publishes 77 to
// 82 % of its own limit for whole steps on an RTX 5090; how that splits into products and attention is
// assumed.
Efficiency Card::efficiency() const {
  if (is_geforce()) return {.products = 0.86, .attention_forward = 0.95, .attention_backward = 0.83};
  return {.products = 0.785, .attention_forward = 0.535, .attention_backward = 0.467};
}

const Card* find_card(std::string_view name) {
  constexpr std::string_view kMaker = "NVIDIA ";
  if (name.starts_with(kMaker)) name.remove_prefix(kMaker.size());
  for (const Card& card : kCards) {
    if (matches(card, name)) return &card;
  }
  return nullptr;
}

const Card& named_card(const std::string& text) {
  if (const Card* card = find_card(text)) return *card;
  std::vector<std::string> known;
  for (const Card& card : kCards) {
    if (essence(card.name) == essence(text)) return card;
    known.push_back(essence(card.name));
  }
  const std::string near = nearest_name(essence(text), known);
  std::string guess;
  for (const Card& card : kCards) {
    if (!near.empty() && essence(card.name) == near)
      guess = fmt::format(" (did you mean \"{}\"?)", card.name);
  }
  throw UserError(
      fmt::format("--card: \"{}\" is not in the table of cards{}; the table has GeForce RTX 3060 "
                  "to 5090, RTX A6000, RTX 6000 Ada, A10, A40, L4, L40, L40S, A100, H100 and H200",
                  text, guess));
}

std::optional<double> card_bf16_rate(std::string_view name) {
  const Card* card = find_card(name);
  return card != nullptr ? std::optional(card->flops()) : std::nullopt;
}

}  // namespace narrowgauge::plan
