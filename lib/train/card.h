#pragma once
#include "lib/plan/cards.h"
#include "lib/train/device.h"

namespace narrowgauge::train {

// The GPU `device` from the table of cards or, when it is not there, as its driver describes it, with the
// rate in products that cards of its kind have at its highest clock. Its name is the device's: `device`
// outlives it. std::logic_error for the CPU.
plan::Card card_of(const ComputeDevice& device);

}  // namespace narrowgauge::train
