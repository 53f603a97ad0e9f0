#pragma once
#include "lib/train/session.h"
#include "lib/train/step.h"

namespace narrowgauge::train {

// Does once everything that a run will do, so that nothing later needs memory that is not there: a
// micro-batch with its update, as kernels and as graphs, a pass of an evaluation and a sample where the run
// has them, a checkpoint written below the run folder, read back into place and removed. Weights, optimizer
// state and data position are as before, to the bit; a run that this ends was not touched. Throws what those
// throw.
void rehearse(Session& session, Step& step);

}  // namespace narrowgauge::train
