#include "tests/support/skip.h"

namespace narrowgauge::test {

__attribute__((weak)) std::string reason_to_skip() { return {}; }

}  // namespace narrowgauge::test
