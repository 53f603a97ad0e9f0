#include "lib/bench/card_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <set>

#include "lib/base/cache_file.h"
#include "lib/base/log.h"
#include "lib/base/version.h"
#include "lib/bench/calibrate.h"
#include "lib/bench/machine.h"
#include "lib/ops/choice_file.h"
#include "lib/plan/search.h"

namespace narrowgauge::bench {
namespace {

constexpr int64_t kMostSequences = 8;
constexpr int64_t kMostTokens = 16384;
constexpr int64_t kMostTimingBytes = int64_t{1} << 30;

std::vector<plan::Probe> missing_probes(const std::vector<plan::Probe>& wanted,
                                        const std::vector<plan::Measurement>& known) {
  std::set<plan::Probe> have;
  for (const plan::Measurement& point : known) have.insert(point.probe);
  std::vector<plan::Probe> missing;
  std::ranges::copy_if(wanted, std::back_inserter(missing),
                       [&](const plan::Probe& probe) { return !have.contains(probe); });
  return missing;
}

}  // namespace

std::vector<plan::Probe> wanted_probes(const Config& config) {
  const int64_t context = config.data.context;
  std::vector<int64_t> micro_batches = plan::micro_batches(config);
  const auto too_large = [&](int64_t sequences) {
    return sequences > kMostSequences || sequences * context > kMostTokens;
  };
  micro_batches.erase(std::remove_if(micro_batches.begin() + 1, micro_batches.end(), too_large),
                      micro_batches.end());
  return plan::probes(config, {context}, micro_batches);
}

std::string kernels_key(const Config& config) {
  return fmt::format(
      "{}, attention {} within {}{}{}{}", config.train.dtype, config.train.attention,
      config.memory.attention_workspace, plan::assumes_determinism(config) ? ", deterministic" : "",
      config.data.document_mask ? ", documents" : "", config.train.tune_kernels ? "" : ", untuned");
}

std::vector<plan::Measurement> kept_rates(const RatesPlace& place, const std::string& card,
                                          const std::vector<plan::Probe>& wanted,
                                          const Calibrate& calibrate) {
  std::vector<plan::Measurement> known = plan::find_rates(read_cache_file(place.file), place.key);
  const std::vector<plan::Probe> missing = missing_probes(wanted, known);
  if (missing.empty() || !calibrate) return known;
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const std::vector<plan::Measurement> measured = calibrate(missing);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  if (measured.empty()) return known;
  write_cache_file(place.file, plan::store_rates(read_cache_file(place.file), place.key, measured));
  log_info(fmt::format("calibrated {} rates of {} in {:.1f} s{}", measured.size(), card, seconds,
                       place.file.empty() ? "" : ", kept in " + place.file.string()));
  known.insert(known.end(), measured.begin(), measured.end());
  return known;
}

plan::Rates stored_rates(plan::RatesKey gpu, const Config& config, const plan::Card& card) {
  gpu.kernels = kernels_key(config);
  return {card, config.train.dtype == "fp32",
          plan::find_rates(read_cache_file(cache_file("rates.json")), gpu)};
}

plan::Rates card_rates(const train::ComputeDevice& device, const Config& config, const plan::Card& card,
                       bool measure) {
  const bool fp32 = config.train.dtype == "fp32";
  if (!device.device.is_cuda()) return {card, fp32};
  const ops::ChoicePlace here = ops::choice_place(device.device);
  const RatesPlace place{
      .file = cache_file("rates.json"),
      .key = {.uuid = here.uuid, .driver = here.driver, .version = kVersion, .kernels = kernels_key(config)}};
  const Calibrate calibrate_here = [&](const std::vector<plan::Probe>& probes) {
    if (free_bytes(device.device) < device.total_bytes / 2) {
      log_warn(fmt::format("another program uses {}: it is not measured now", device.name));
      return std::vector<plan::Measurement>();
    }
    log_info(fmt::format("calibrating {}, once: {} rates are measured", device.name, probes.size()));
    const train::DeviceMemory memory(device, config.memory.budget, config.memory.reserve);
    return calibrate(device, config, probes, std::min(kMostTimingBytes, memory.cap() / 2));
  };
  return {card, fp32,
          kept_rates(place, device.name, wanted_probes(config), measure ? calibrate_here : Calibrate())};
}

}  // namespace narrowgauge::bench
