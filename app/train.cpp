#include "lib/train/trainer.h"

#include "app/cli.h"
#include "app/command.h"
#include "lib/base/error.h"
#include "lib/bench/card_rates.h"
#include "lib/data/verify.h"

namespace narrowgauge::app {

int run_train(int argc, char** argv) {
  Cli cli("train", "CONFIG --run DIR [options]", "Train a model as a YAML file says, into a run folder.");
  cli.positional("config", "YAML file; narrowgauge config --explain lists its keys");
  cli.required_option("run", "DIR", "run folder: metrics, log and checkpoints; made when missing");
  cli.option("resume", "auto|STEP",
             "continue the run in DIR from its newest complete checkpoint, or from that step");
  cli.flag("allow-data-change", "resume although the data or its order changed");
  cli.repeated("set", "KEY=VALUE", "override a key of the config, such as train.steps=200");
  const auto arguments = cli.parse(argc, argv);
  if (!arguments) return kExitDone;
  const Config config = load_config(arguments->text("config"), arguments->list("set"));
  data::verify_before_training("data.train", config.data.train, config.model.vocab_size);
  if (!config.data.val.empty()) {
    data::verify_before_training("data.val", config.data.val, config.model.vocab_size);
  }
  train::train({.config = config,
                .run = arguments->text("run"),
                .resume = arguments->text("resume"),
                .allow_data_change = arguments->flag("allow-data-change"),
                .rates = [](const Config& run, const plan::Card& card) {
                  return bench::card_rates(train::open_device(run.train.device), run, card, /*measure=*/true);
                }});
  return kExitDone;
}

}  // namespace narrowgauge::app
