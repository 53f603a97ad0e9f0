// Noticing that training has become slow, and whether memory has left the card.
#include "lib/train/residency.h"
#include "lib/train/slow_steps.h"
#include "tests/support/catch.h"

namespace narrowgauge::train {
namespace {

// A probe of ten pieces, `slow` of them at a twentieth of the speed.
Residency::Probe pieces(const int& slow) {
  return [&slow] {
    CopySpeeds speeds{.bytes_per_second = std::vector<double>(10, 400e9), .piece_bytes = 1000};
    for (int i = 0; i < slow; ++i) speeds.bytes_per_second[static_cast<size_t>(i)] = 20e9;
    return speeds;
  };
}

TEST_CASE("three slow steps in a row are noticed, once a row") {
  SlowSteps steps;
  for (int i = 0; i < 10; ++i) CHECK_FALSE(steps.add(1.0 + 0.01 * i));
  CHECK_FALSE(steps.add(1.4));
  CHECK_FALSE(steps.add(1.4));
  CHECK_FALSE(steps.add(1.0));  // the row is broken
  CHECK_FALSE(steps.add(1.4));
  CHECK_FALSE(steps.add(1.5));
  CHECK(steps.add(20));
  CHECK(steps.median() < 1.1);  // slow steps do not count
  CHECK_FALSE(steps.add(20));
  CHECK_FALSE(steps.add(20));
  CHECK(steps.add(20));
  steps.restart();
  CHECK(steps.median() == 0);
}

TEST_CASE("nothing is slow before there is a median, nor a little above it") {
  SlowSteps steps;
  for (int i = 0; i < 7; ++i) CHECK_FALSE(steps.add(i < 3 ? 30 : 1));
  SlowSteps steady;
  for (int i = 0; i < 200; ++i) CHECK_FALSE(steady.add(i % 2 == 0 ? 1.0 : 1.29));
}

TEST_CASE("pieces that are read at a fraction of the usual speed are spilled") {
  int slow = 0;
  Residency residency(pieces(slow));
  slow = 3;
  CHECK(residency.spilled_bytes() == 0);  // not calibrated
  slow = 0;
  residency.calibrate();
  CHECK(residency.spilled_bytes() == 0);
  slow = 3;
  CHECK(residency.spilled_bytes() == 3000);
  slow = 10;  // all of it: the usual speed is that of the start
  CHECK(residency.spilled_bytes() == 10000);
}

}  // namespace
}  // namespace narrowgauge::train
