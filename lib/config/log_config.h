#pragma once
#include <cstdint>
#include <string>

namespace narrowgauge {

struct LogConfig {
  int64_t every = 10;             // steps between plain progress lines when not on a terminal
  std::string progress = "auto";  // auto | plain
};

}  // namespace narrowgauge
