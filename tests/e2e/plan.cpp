// narrowgauge plan as a person uses it, on a machine without a GPU.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/e2e/workshop.h"
#include "tests/support/catch.h"

namespace narrowgauge::test {
namespace {

namespace fs = std::filesystem;

const std::string kPreset = std::string(NARROWGAUGE_SOURCE_DIR) + "/configs/1b-16gb.yaml";

nlohmann::json plan_json(const Words& more) {
  Words words{"plan", kPreset, "--json"};
  words.insert(words.end(), more.begin(), more.end());
  return nlohmann::json::parse(run_well(words).out);
}

TEST_CASE("a plan without a GPU") {
  const Outcome outcome = run_well({"plan", kPreset, "--card", "rtx5080"});
  INFO(outcome.out);
  for (const char* part :
       {"GeForce RTX 5080", "micro-batch", "recompute", "estimate", "budget", "memory.budget"}) {
    CHECK(outcome.out.find(part) != std::string::npos);
  }
  CHECK(outcome.err.empty());
  CHECK(run_well({"plan", kPreset, "--card", "5080"}).out == outcome.out);
}

TEST_CASE("what a plan's budget is") {
  const int64_t gibibyte = int64_t{1} << 30;
  CHECK(plan_json({"--card", "5080"})["budget"] == gibibyte * 29 / 2);  // the preset's
  CHECK(plan_json({"--card", "5080", "--set", "memory.budget=auto"})["budget"] == 15 * gibibyte);
  CHECK(plan_json({"--card", "5080", "--reserve", "2GiB"})["budget"] == 14 * gibibyte);
  CHECK(plan_json({"--card", "5080", "--device-memory", "12GiB"})["budget"] == 11 * gibibyte);
  const auto large = plan_json({"--card", "H200", "--set", "memory.budget=auto"});
  const auto small = plan_json({"--card", "H200", "--device-memory", "12GiB"});
  CHECK(large["plan"]["seconds"].get<double>() < small["plan"]["seconds"].get<double>());
  CHECK(plan_json({"--card", "5080", "--set", "train.micro_batch=2"})["plan"]["micro_batch"] == 2);
}

TEST_CASE("a picture of a plan") {
  const Workshop& shop = workshop();
  for (const char* name : {"plan.svg", "plan.html"}) {
    run_well({"plan", kPreset, "--card", "5080", "--picture", shop.text(name)});
    CHECK(read_text(shop.path(name)).find("</svg>") != std::string::npos);
  }
  require_user_error(run({"plan", kPreset, "--card", "5080", "--picture", shop.text("plan.png")}),
                     {"--picture", "plan.png", ".svg"});
  CHECK_FALSE(fs::exists(shop.path("plan.png")));
}

TEST_CASE("bad plans") {
  require_user_error(run({"plan"}), {"config"});
  require_user_error(run({"plan", kPreset, "--card", "RTX 5081"}),
                     {"--card", "RTX 5081", "did you mean", "5080"});
  require_user_error(run({"plan", kPreset, "--card", "5080", "--device-memory", "lots"}),
                     {"--device-memory", "lots", "14.5GiB"});
  require_user_error(run({"plan", kPreset, "--card", "5080", "--reserve", "20GiB"}),
                     {"--reserve", "20.0 GiB"});
  require_user_error(run({"plan", kPreset, "--card", "5080", "--device-memory", "8GiB"}),
                     {"nothing fits", "7.0 GiB", "it fits with", "a budget of"});
  require_user_error(run({"plan", kPreset, "--card", "5080", "--device-memory", "10.5GiB"}),
                     {"nothing fits", "9.5 GiB", "--set optim.master=stochastic"});
  if (fs::exists("/dev/nvidia0")) return;
  require_user_error(run({"plan", kPreset}), {"no GPU", "--card"});
}

}  // namespace
}  // namespace narrowgauge::test
