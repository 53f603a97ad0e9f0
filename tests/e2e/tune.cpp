// narrowgauge tune where it cannot run: on a machine without a GPU, and where its answer has no place.
#include <filesystem>

#include "tests/e2e/workshop.h"
#include "tests/support/catch.h"

namespace narrowgauge::test {
namespace {

namespace fs = std::filesystem;

TEST_CASE("an answer replaces no file") {
  const Workshop& shop = workshop();
  write_text(shop.path("mine.yaml"), "train: {}\n");
  require_user_error(run({"tune", shop.config(), "--out", shop.text("mine.yaml")}),
                     {"--out", "mine.yaml", "exists"});
  CHECK(read_text(shop.path("mine.yaml")) == "train: {}\n");
  fs::create_symlink(shop.path("nowhere"), shop.path("link.yaml"));
  require_user_error(run({"tune", shop.config(), "--out", shop.text("link.yaml")}),
                     {"--out", "link.yaml", "exists"});
  require_user_error(run({"tune", shop.config(), "--out", shop.text("no-folder/a.yaml")}),
                     {"--out", "no-folder", "no folder"});
}

TEST_CASE("bad words of tune") {
  const Workshop& shop = workshop();
  require_user_error(run({"tune"}), {"config"});
  require_user_error(run({"tune", shop.text("absent.yaml")}), {"absent.yaml"});
  require_user_error(run({"tune", shop.config(), "--candidates", "0"}), {"--candidates", "0"});
  require_user_error(run({"tune", shop.config(), "--steps", "1"}), {"--steps", "1"});
  require_user_error(run({"tune", shop.config(), "--set", "train.device=cpu"}), {"train.device", "auto"});
  const Outcome help = run_well({"tune", "--help"});
  for (const char* option : {"--card", "--reserve", "--candidates", "--out", "--fresh"}) {
    CHECK(help.out.find(option) != std::string::npos);
  }
}

TEST_CASE("no GPU to tune on") {
  if (fs::exists("/dev/nvidia0")) {
    WARN("a GPU is here: not tested");
    return;
  }
  const Workshop& shop = workshop();
  require_user_error(run({"tune", shop.config(), "--set", "train.device=auto"}),
                     {"tune", "no GPU", "narrowgauge plan"});
  require_user_error(run({"tune", shop.config(), "--set", "train.device=auto", "--card", "5080", "--out",
                          shop.text("new.yaml")}),
                     {"no GPU"});
  CHECK_FALSE(fs::exists(shop.path("new.yaml")));
}

}  // namespace
}  // namespace narrowgauge::test
