#pragma once
#include "lib/train/checkpoint.h"

namespace narrowgauge::train {

// The identity of a run with this resolved config. `data` and `tokenizer` as in RunIdentity. The texts have
// one "key=value" a line.
RunIdentity run_identity(const Config& config, uint64_t data, uint64_t tokenizer);

// UserError that lists every difference when `now` cannot continue `saved`. With `allow_data_change` other
// data (and another order of samples) pass.
void require_same_run(const RunIdentity& saved, const RunIdentity& now, bool allow_data_change);

}  // namespace narrowgauge::train
