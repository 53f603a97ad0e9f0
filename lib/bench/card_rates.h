#pragma once
// What plans need to know of the card at hand: measured once, then kept on disk.
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "lib/config/config.h"
#include "lib/plan/rates.h"
#include "lib/train/device.h"

namespace narrowgauge::bench {

// Rates for plans of this config on the GPU `device`, whose limits are `card`'s: those that
// cache_file("rates.json") has for it, its driver, this version and the config's kernels. With `measure`,
// what is missing of wanted_probes() is measured (lib/bench/calibrate.h) and kept there; two lines say so,
// and the process's device memory is capped for it as for training. While half of the card's memory is taken,
// another program is at work on it: nothing is measured, with a warning. Estimates where nothing is measured,
// and on a CPU.
plan::Rates card_rates(const train::ComputeDevice& device, const Config& config, const plan::Card& card,
                       bool measure);

// What is kept there of a GPU that is not opened (train::find_gpu), and estimates for the rest.
plan::Rates stored_rates(plan::RatesKey gpu, const Config& config, const plan::Card& card);

// The probes of the config's context and of the micro-batches to choose from, of at most 8 sequences and
// 16384 tokens: more rows are as fast, and take long to measure. The smallest micro-batch at least.
std::vector<plan::Probe> wanted_probes(const Config& config);

// What of a config decides kernels besides the shapes of probes: RatesKey::kernels.
std::string kernels_key(const Config& config);

// Where measured rates are kept.
struct RatesPlace {
  std::filesystem::path file;  // may be missing or damaged; empty: nothing is kept
  plan::RatesKey key;
};

using Calibrate = std::function<std::vector<plan::Measurement>(const std::vector<plan::Probe>& probes)>;

// Those that are kept and, from `calibrate` (may be empty), those of `wanted` that are not, which are kept
// then, and a line says so. `card`: its name.
std::vector<plan::Measurement> kept_rates(const RatesPlace& place, const std::string& card,
                                          const std::vector<plan::Probe>& wanted, const Calibrate& calibrate);

}  // namespace narrowgauge::bench
