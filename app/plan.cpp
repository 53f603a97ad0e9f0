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
#include "lib/plan/report.h"
#include "lib/train/device.h"
#include "lib/train/evaluate.h"

namespace narrowgauge::app {
namespace {

struct Target {
  const plan::Card* card;
  int64_t bytes;  // of its memory
};

// The card that is named, else the GPU of this machine.
Target find_target(const Arguments& arguments) {
  Target target{.card = nullptr, .bytes = 0};
  if (arguments.given("card")) {
    target.card = &plan::named_card(arguments.text("card"));
    target.bytes = target.card->bytes();
  } else {
    const train::ComputeDevice device = train::open_device("auto");
    if (!device.device.is_cuda()) {
      throw UserError(
          "plan: no GPU answers here, so the card must be named, like --card \"RTX 5080\" (--device-memory "
          "12GiB "
          "if it has another amount than usual)");
    }
    target = {.card = plan::find_card(device.name), .bytes = device.total_bytes};
    if (target.card == nullptr) {
      throw UserError(fmt::format(
          "plan: this GPU ({}) is not in the table of cards; name the one most like it with --card",
          device.name));
    }
  }
  if (arguments.given("device-memory")) target.bytes = bytes_of(arguments, "device-memory");
  return target;
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
          "Find the fastest micro-batch and recompute levels that fit into a card's memory, without running\n"
          "anything: bytes, speed and the runners-up. Keys of the config that are not auto are kept.");
  cli.positional("config", "YAML file of the run");
  cli.repeated("set", "KEY=VALUE", "override a key of the config, such as data.context=2048");
  cli.option("card", "NAME", "card to plan for, like \"RTX 5080\"; without it the GPU of this machine");
  cli.option("device-memory", "SIZE", "memory of the card, like 16GiB; without it what the card has");
  cli.option("reserve", "SIZE", "memory left to the desktop and other programs", "1GiB");
  cli.flag("json", "print one JSON object");
  cli.option("picture", "FILE", "draw the memory over a step's timeline, to FILE.svg or FILE.html");
  const auto arguments = cli.parse(argc, argv);
  if (!arguments) return kExitDone;

  const bool html = arguments->given("picture") && wants_html(arguments->text("picture"));
  const Config config = load_config(arguments->text("config"), arguments->list("set"));
  const Target target = find_target(*arguments);
  const Budget budget = find_budget(*arguments, config, target.bytes);
  const plan::Rates rates(*target.card, config.train.dtype == "fp32");
  plan::Request request{.config = config, .surroundings = {}, .budget = budget.bytes, .loss_chunks = {}};
  request.surroundings.limits = target.card->limits();
  request.surroundings.evaluation_sequences = train::evaluation_windows(config.data.context);
  plan::Report report = plan::make_report(request, rates, *target.card);
  report.budget_rule = budget.rule;
  print(arguments->flag("json") ? plan::report_json(report).dump(2) + "\n" : plan::report_text(report));
  if (arguments->given("picture")) {
    const plan::MemoryModel memory(config, request.surroundings);
    atomic_write_file(arguments->text("picture"),
                      plan::picture(report, memory.timeline(report.plan.choice), html));
  }
  return kExitDone;
}

}  // namespace narrowgauge::app
