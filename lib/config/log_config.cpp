#include "lib/config/log_config.h"

#include "lib/config/key_types.h"

namespace narrowgauge {

ConfigSection log_section() {
  using L = LogConfig;
  SectionRows<L> rows("log", "What the run prints.", &Config::log);
  rows.integer("every", &L::every, at_least(1), "steps", "Distance of plain progress lines.");
  rows.choice("progress", &L::progress, {"auto", "plain"},
              "auto: one live line on a terminal, else plain lines.");
  return rows.take();
}

}  // namespace narrowgauge
