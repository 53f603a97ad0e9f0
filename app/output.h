#pragma once
#include <string_view>

namespace narrowgauge::app {

// Puts /dev/null in the place of standard descriptors that came closed, so that no file of ours gets their
// numbers. main calls it first.
void hold_standard_descriptors();

// Writes to standard output and flushes it. UserError when it is closed or full. When its reader has gone
// (| head), SIGPIPE ends the process without a word, as it ends other tools.
void print(std::string_view text);

}  // namespace narrowgauge::app
