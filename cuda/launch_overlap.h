#pragma once

namespace narrowgauge::cuda {

// Whether a kernel of cuda/ may be set up while the one before it on its stream still runs: true at first,
// and for the process, from any thread. The results are the same; off is for measurements. What a captured
// graph does was decided when it was captured.
void set_launch_overlap(bool on);
bool launch_overlap();

}  // namespace narrowgauge::cuda
