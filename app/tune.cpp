#include "lib/bench/tune.h"

#include <fmt/format.h>

#include <filesystem>

#include "app/budget.h"
#include "app/cli.h"
#include "app/command.h"
#include "app/output.h"
#include "lib/base/cache_file.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/log.h"
#include "lib/base/scratch_folder.h"
#include "lib/bench/card_rates.h"
#include "lib/train/evaluate.h"
#include "lib/train/gpu.h"
#include "lib/train/signals.h"

namespace narrowgauge::app {
namespace {

namespace fs = std::filesystem;

// Of the YAML that will hold the answer: nothing is lost, and a long run is not in vain.
void require_new_file(const fs::path& path) {
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(path, ignored))) {
    throw UserError(
        fmt::format("--out: {} exists and is not replaced; give another name, or remove it", path.string()));
  }
  if (!path.parent_path().empty() && !fs::is_directory(path.parent_path(), ignored)) {
    throw UserError(
        fmt::format("--out: {} is no folder; make it, or give another name", path.parent_path().string()));
  }
}

train::GpuFacts this_gpu(const Config& config) {
  if (config.train.device == "cpu") {
    throw UserError("tune: train.device is cpu, and only a GPU is tuned; give --set train.device=auto");
  }
  if (auto gpu = train::find_gpu()) return *gpu;
  throw UserError(
      "tune: no GPU answers here, and tune measures on one; narrowgauge plan CONFIG --card \"RTX 5080\" "
      "estimates without");
}

// The card whose rates choose what to run.
const plan::Card& card_like(const train::GpuFacts& gpu, const Arguments& arguments) {
  if (arguments.given("card")) return plan::named_card(arguments.text("card"));
  if (const plan::Card* card = plan::find_card(gpu.name)) return *card;
  throw UserError(fmt::format(
      "tune: this GPU ({}) is not in the table of cards; name the one most like it with --card", gpu.name));
}

std::string this_program() { return fs::read_symlink("/proc/self/exe").string(); }

}  // namespace

int run_tune(int argc, char** argv) {
  Cli cli(
      "tune", "CONFIG [options]",
      "Run the most promising micro-batches and recompute levels of a plan on this GPU, each in a process\n"
      "of its own, and remember the fastest for train. Ctrl-C stops; the same command goes on from there.");
  cli.positional("config", "YAML file of the run");
  cli.repeated("set", "KEY=VALUE", "override a key of the config, such as data.context=2048");
  cli.option("card", "NAME", "card like this GPU, when the table of cards does not have it");
  cli.option("reserve", "SIZE", "memory left to the desktop and other programs; without it memory.reserve");
  cli.option("candidates", "N", "choices that are run", "6");
  cli.option("steps", "N", "optimizer steps of each that are measured", "8");
  cli.option("warmup", "N", "optimizer steps before them", "3");
  cli.option("out", "FILE", "also write the config with the choice in it, as YAML");
  cli.flag("fresh", "measure again what was measured before");
  const auto arguments = cli.parse(argc, argv);
  if (!arguments) return kExitDone;

  const fs::path out = arguments->text("out");
  if (arguments->given("out")) require_new_file(out);
  const Config config = load_config(arguments->text("config"), arguments->list("set"));
  const auto candidates = static_cast<size_t>(arguments->integer("candidates", 1, 100));
  const int64_t steps = arguments->integer("steps", 2, 10000),
                warmup = arguments->integer("warmup", 2, 10000);
  const train::GpuFacts gpu = this_gpu(config);
  const plan::Card& card = card_like(gpu, *arguments);
  const Budget budget = find_budget(*arguments, config, gpu.total_bytes);
  plan::Request wanted{.config = config,
                       .surroundings = {},
                       .budget = budget.bytes,
                       .loss_chunks = {},
                       .candidates = candidates};
  wanted.surroundings.limits = card.limits();
  wanted.surroundings.evaluation_sequences = train::evaluation_windows(config.data.context);
  const bench::TuneRequest request{
      .plan = wanted,
      .key = {.card = gpu.key, .budget = budget.bytes, .config = plan::tuned_config(config)},
      .cache = cache_file("tuned.json"),
      .fresh = arguments->flag("fresh")};

  const ScratchFolder scratch;
  const train::StopSignals signals(/*grace=*/0);
  const bench::Tuning tuning = bench::tune(
      request, bench::stored_rates(gpu.key, config, card),
      {.program = this_program(), .folder = scratch.path(), .steps = steps, .warmup = warmup, .stop = [&] {
         return signals.requested();
       }});
  if (!tuning.trials.empty()) print(to_text(bench::tuning_table(tuning, request)));
  if (tuning.interrupted) {
    log_info(fmt::format("{}: stopped; what was measured is kept, and the same command goes on from there",
                         signals.name()));
    return kExitDone;
  }
  const plan::Trial& best = bench::chosen(tuning, request);
  print(
      fmt::format("chosen: {}: {:.0f} tokens/s\n", bench::choice_text(best.choice), best.tokens_per_second));
  if (arguments->given("out")) {
    atomic_write_file(out, dump_config(plan::with_choice(config, best.choice)));
    print(fmt::format("written to {}\n", out.string()));
  }
  return kExitDone;
}

}  // namespace narrowgauge::app
