#pragma once
// How long the parts of a step take on a card: measured once per card, or estimated from the table of cards.
#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "lib/config/config.h"
#include "lib/plan/cards.h"

namespace narrowgauge::plan {

// What is timed. `shape` of
//   products   {inputs, outputs, bytes of a gradient's element}; rows: tokens. forward y = x w^T, input_grad
//              dx = dy w, weight_grad dw += dy^T x (the last alone depends on the element of dw)
//   attention  {context, heads, kv_heads, head_size}; rows: sequences. One pass, causal, packed rows
//   traffic    {}; rows: bytes read plus bytes written by a kernel that only moves them
//   launch     {}; rows: kernels. From the end of a kernel to the beginning of the next, with the program's
//              own way of launching (graphs)
enum class Work : uint8_t {
  product,
  product_input_grad,
  product_weight_grad,
  attention,
  attention_backward,
  attention_backward_deterministic,
  traffic,
  launch,
};
inline constexpr int kWorks = static_cast<int>(Work::launch) + 1;
const char* work_name(Work work);

struct Probe {
  Work work = Work::traffic;
  int64_t rows = 0;
  std::array<int64_t, 4> shape{};
  auto operator<=>(const Probe&) const = default;
};

// Of one call: the median of warm calls on cold data.
struct Measurement {
  Probe probe;
  double seconds = 0;
  bool operator==(const Measurement&) const = default;
};

// Seconds from a card's limits alone. Products: FLOP over the card's rate in waves of 128 x 256 tiles over
// its multiprocessors, a started wave counting in part; a weight gradient also reads and writes its sum.
// Attention: FLOP of the causal half (2 T^2 A forward, 2.5 times that backward), heads padded to 32 columns,
// half-empty tiles on the diagonal. Copies, launches and all efficiencies are those of an H200, GeForce cards
// apart (cards.cpp).
class Roofline {
 public:
  Roofline(const Card& card, bool fp32);
  [[nodiscard]] double seconds(const Probe& probe) const;

 private:
  [[nodiscard]] double product(const Probe& probe) const;
  [[nodiscard]] double attention(const Probe& probe) const;

  double flops_;
  double bandwidth_;  // of a copy
  int sm_count_;
  int64_t element_;  // bytes
  Efficiency efficiency_;
};

// Measured seconds where there are some, between and beyond them as the roofline says.
class Rates {
 public:
  // Estimates. `fp32`: train.dtype fp32.
  Rates(const Card& card, bool fp32) : roofline_(card, fp32) {}
  // `card` scales what was not measured. Measurements of no time or no rows are std::invalid_argument.
  Rates(const Card& card, bool fp32, std::vector<Measurement> measured);

  // More rows never take less time, and measured probes take what was measured (the largest time of probes
  // with no more rows): log-log between two measured rows of a shape, beyond them and for other shapes of
  // that work the roofline times measured / roofline of the nearest.
  [[nodiscard]] double seconds(const Probe& probe) const;
  [[nodiscard]] bool estimated() const { return families_.empty(); }

 private:
  struct Family {  // the measurements of one shape by ascending rows
    Work work;
    std::array<int64_t, 4> shape;
    std::vector<Measurement> points;
  };
  [[nodiscard]] const Family* nearest(const Probe& probe) const;
  [[nodiscard]] double within(const Family& family, int64_t rows) const;

  Roofline roofline_;
  std::vector<Family> families_;
};

// What should be measured so that every step of these sizes is timed from measurements: each product of a
// layer and the head, attention, traffic and launches. Sorted, without repetitions.
std::vector<Probe> probes(const Config& config, const std::vector<int64_t>& contexts,
                          const std::vector<int64_t>& micro_batches);

// What measurements are valid for.
struct RatesKey {
  std::string uuid;       // of the GPU
  std::string driver;     // as the driver says it
  std::string version;    // of narrowgauge
  std::string kernels{};  // what decides kernels besides the shapes of probes
  bool operator==(const RatesKey&) const = default;
};

// {"format": 1, "cards": [{"uuid", "driver", "version", "kernels", "points": [{"work", "rows", "shape",
// "seconds"}]}]}. `file` is the file's text so far ("" for none); what it held for the key is replaced, but
// measurements of probes that are not among the new ones stay. A text that is no such file counts as none.
std::string store_rates(const std::string& file, const RatesKey& key, const std::vector<Measurement>& points);
// Those of the key; none when the text has none or is no such file.
std::vector<Measurement> find_rates(const std::string& file, const RatesKey& key);

}  // namespace narrowgauge::plan
