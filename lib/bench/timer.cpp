#include "lib/bench/timer.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>

#if NARROWGAUGE_CUDA
#include <ATen/cuda/Sleep.h>
#endif

namespace narrowgauge::bench {
namespace {

constexpr int kSamples = 50;
constexpr double kSampleMicroseconds =
    200;                               // at least so long, so that the events' resolution does not count
constexpr double kMaxClockMHz = 3000;  // no card's is higher: the wait is never too short

double host_microseconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(now).count();
}

// The device does nothing for this long.
void idle(double microseconds) {
#if NARROWGAUGE_CUDA
  at::cuda::sleep(static_cast<int64_t>(microseconds * kMaxClockMHz));
#else
  (void)microseconds;
#endif
}

// Device time between two points of the current stream.
class Lap {
 public:
  explicit Lap(at::Device device)
      : device_(device),
        guard_(device.type()),
        begin_(device.type(), c10::EventFlag::BACKEND_DEFAULT),
        end_(device.type(), c10::EventFlag::BACKEND_DEFAULT) {}
  void begin() { begin_.record(guard_.getStream(device_)); }
  void end() { end_.record(guard_.getStream(device_)); }
  [[nodiscard]] double microseconds() const {
    end_.synchronize();
    return begin_.elapsedTime(end_) * 1e3;
  }

 private:
  at::Device device_;
  c10::impl::VirtualGuardImpl guard_;
  c10::Event begin_;
  c10::Event end_;
};

}  // namespace

std::vector<Prepared> rotating_sets(const Gpu& gpu, const std::function<Prepared()>& prepare) {
  std::vector<Prepared> sets;
  int64_t bytes = 0;
  while (sets.empty() || bytes <= 4 * gpu.l2_bytes) {
    sets.push_back(prepare());
    bytes += std::max<int64_t>(sets.back().footprint, 1 << 20);
  }
  return sets;
}

Spread time_launches(const Gpu& gpu, const std::vector<std::function<void()>>& launches) {
  if (launches.empty()) throw std::invalid_argument("nothing to measure");
  size_t next = 0;
  const auto launch = [&] { launches[next++ % launches.size()](); };
  for (int i = 0; i < 3; ++i) launch();
  synchronise(gpu.device);

  constexpr int kProbes = 4;
  Lap probe(gpu.device);
  probe.begin();
  const double before = host_microseconds();
  for (int i = 0; i < kProbes; ++i) launch();
  const double host = (host_microseconds() - before) / kProbes;
  probe.end();
  const double device = probe.microseconds() / kProbes;
  const int repeats = std::clamp(static_cast<int>(std::ceil(kSampleMicroseconds / device)), 1, 40);
  const double lead = host > 0.6 * device ? 1.5 * host * repeats : 0;

  std::vector<Lap> laps;
  laps.reserve(kSamples);
  for (int sample = 0; sample < kSamples; ++sample) {
    Lap& lap = laps.emplace_back(gpu.device);
    if (lead > 0) idle(lead);
    lap.begin();
    for (int i = 0; i < repeats; ++i) launch();
    lap.end();
  }
  std::vector<double> samples;
  for (const Lap& lap : laps) samples.push_back(lap.microseconds() / repeats);
  return spread(samples);
}

Spread time_sets(const Gpu& gpu, const std::vector<Prepared>& sets) {
  std::vector<std::function<void()>> launches;
  for (const Prepared& set : sets) launches.push_back(set.launch);
  return time_launches(gpu, launches);
}

Json to_json(const Spread& microseconds) {
  return {{"median_us", microseconds.median}, {"p20_us", microseconds.p20}, {"p80_us", microseconds.p80}};
}

}  // namespace narrowgauge::bench
