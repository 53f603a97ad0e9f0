#include "lib/config/config.h"
#include "app/cli.h"
#include "app/command.h"
#include "app/output.h"
#include "lib/base/error.h"

namespace narrowgauge::app {

int run_config(int argc, char** argv) {
  Cli cli("config", "FILE [--set KEY=VALUE ...] | --explain [--markdown]",
          "Check a config file and print every key with its value, or explain all keys.");
  cli.positional("file", "YAML config file", false);
  cli.repeated("set", "KEY=VALUE", "override a key, like train.steps=200");
  cli.flag("explain", "every key: type, default, unit, allowed values, one sentence");
  cli.flag("markdown", "with --explain: as Markdown");
  const auto arguments = cli.parse(argc, argv);
  if (!arguments) return kExitDone;
  const bool explain = arguments->flag("explain"), file = arguments->given("file");
  if (explain == file || (file && arguments->flag("markdown"))) {
    throw UserError("config: give a config file, or --explain with or without --markdown");
  }
  print(explain ? explain_config(arguments->flag("markdown"))
                : dump_config(load_config(arguments->text("file"), arguments->list("set"))));
  return kExitDone;
}

}  // namespace narrowgauge::app
