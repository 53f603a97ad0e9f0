#pragma once
#include "lib/train/reporter.h"
#include "lib/train/session.h"

namespace narrowgauge::train {

// Says once what is about to run (model, device, attention kernel, choices made for "auto"), to people and as
// the "start" row.
void report_start(const Session& session, const TrainRequest& request, Reporter& reporter);

// The plan that the run follows, in a line and as a "plan" row; nothing where there is none.
void report_plan(const Session& session, Reporter& reporter);

}  // namespace narrowgauge::train
