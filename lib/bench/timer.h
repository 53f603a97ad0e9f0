#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "lib/bench/machine.h"
#include "lib/bench/stats.h"

namespace narrowgauge::bench {

// One buffer set of a measured operation. `launch` queues the operation once on the current stream.
struct Prepared {
  std::function<void()> launch;
  std::function<void()> eager{};  // the same result by plain ATen expressions; may be empty
  int64_t footprint = 0;          // bytes of the buffers that this set alone owns
};

// What is measured: `prepare` allocates one buffer set with random contents.
struct Measured {
  std::string name;
  std::string shape;
  double bytes = 0;  // least traffic with device memory
  std::function<Prepared()> prepare;
};

// As many sets as together exceed four times the L2 cache, so that nothing is found there.
std::vector<Prepared> rotating_sets(const Gpu& gpu, const std::function<Prepared()>& prepare);

// Microseconds of one launch. After a warm-up at least 50 samples, each of neighbouring launches between two
// events on the current stream; where the host is too slow to keep the device busy, the device first waits
// for it. Sets are used in turn. std::invalid_argument for no sets.
Spread time_launches(const Gpu& gpu, const std::vector<std::function<void()>>& launches);
Spread time_sets(const Gpu& gpu, const std::vector<Prepared>& sets);

Json to_json(const Spread& microseconds);  // median_us, p20_us, p80_us

}  // namespace narrowgauge::bench
