#include "lib/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/budget.h"
#include "app/cli.h"
#include "app/command.h"
#include "app/output.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/bench/card_rates.h"
#include "lib/plan/report.h"
#include "lib/train/card.h"
#include "lib/train/device.h"
#include "lib/train/evaluate.h"

namespace narrowgauge::app {
namespace {

train::ComputeDevice open_gpu() {
  train::ComputeDevice device = train::open_device("auto");
  if (device.device.is_cuda()) return device;
  throw UserError(
      "plan: no GPU answers here, so the card must be named, like --card \"RTX 5080\" (--device-memory 12GiB "
      "if it has another amount than usual)");
}

bool wants_html(const std::string& path) {
  const std::string ending = std::filesystem::path(path).extension().string();
  if (ending != ".svg" && ending != ".html") {
    throw UserError(fmt::format("--picture: \"{}\" must end in .svg or .html", path));
  }
  return ending == ".html";
}

}  // namespace

int run_plan(int argc, char** argv) {
  Cli cli("plan", "CONFIG [--card NAME] [--device-memory SIZE] [options]",
          "Find the fastest micro-batch and recompute levels that fit into a card's memory: bytes, speed and "
          "the\n"
          "runners-up. This machine's GPU is measured once for it. Keys of the config that are not auto are\n"
          "kept.");
  cli.positional("config", "YAML file of the run");
  cli.repeated("set", "KEY=VALUE", "override a key of the config, such as data.context=2048");
  cli.option("card", "NAME",
             "card to plan for by estimates, like \"RTX 5080\"; without it the GPU of this machine");
  cli.option("device-memory", "SIZE", "memory of the card, like 16GiB; without it what the card has");
  cli.option("reserve", "SIZE", "memory left to the desktop and other programs; without it memory.reserve");
  cli.flag("no-measure", "without --card: estimate what was not measured on this GPU before");
  cli.flag("json", "print one JSON object");
  cli.option("picture", "FILE", "draw the memory over a step's timeline, to FILE.svg or FILE.html");
  const auto arguments = cli.parse(argc, argv);
  if (!arguments) return kExitDone;

  const bool html = arguments->given("picture") && wants_html(arguments->text("picture"));
  const Config config = load_config(arguments->text("config"), arguments->list("set"));
  const bool here = !arguments->given("card");
  const train::ComputeDevice device = here ? open_gpu() : train::ComputeDevice{};
  const plan::Card card = here ? train::card_of(device) : plan::named_card(arguments->text("card"));
  int64_t total = here ? device.total_bytes : card.bytes();
  if (arguments->given("device-memory")) total = bytes_of(*arguments, "device-memory");
  const Budget budget = find_budget(*arguments, config, total);
  const plan::Rates rates = bench::card_rates(device, config, card, !arguments->flag("no-measure"));
  plan::Request request{.config = config, .surroundings = {}, .budget = budget.bytes, .loss_chunks = {}};
  request.surroundings.limits = card.limits();
  request.surroundings.evaluation_sequences = train::evaluation_windows(config.data.context);
  plan::Report report = plan::make_report(request, rates, card);
  report.budget_rule = budget.rule;
  if (plan::find_card(report.card) == nullptr) report.card_flops = 0;  // no data sheet
  print(arguments->flag("json") ? plan::report_json(report).dump(2) + "\n" : plan::report_text(report));
  if (arguments->given("picture")) {
    const plan::MemoryModel memory(config, request.surroundings);
    atomic_write_file(arguments->text("picture"),
                      plan::picture(report, memory.timeline(report.plan.choice), html));
  }
  return kExitDone;
}

}  // namespace narrowgauge::app
