#pragma once
#include <string>

namespace narrowgauge::test {

// Why no test of this program can run here; empty when they can. main() prints the reason and exits with 77,
// which ctest shows as skipped. A program that defines none of its own always runs.
std::string reason_to_skip();

}  // namespace narrowgauge::test
