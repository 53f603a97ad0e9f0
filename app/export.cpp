#include <fmt/format.h>

#include "app/cli.h"
#include "app/command.h"
#include "app/run.h"
#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/train/checkpoint_export.h"

namespace narrowgauge::app {
namespace {

at::ScalarType parse_dtype(const std::string& name) {
  if (name == "bf16") return at::kBFloat16;
  if (name == "fp32") return at::kFloat;
  throw UserError(fmt::format("--dtype is {}: must be bf16 or fp32", name));
}

}  // namespace

int run_export(int argc, char** argv) {
  Cli cli("export", "RUN --out DIR [options]",
          "Write a checkpoint as a Hugging Face folder that transformers loads.");
  cli.positional("run", "run folder");
  cli.required_option("out", "DIR", "folder to write; must be new or empty");
  cli.option("dtype", "bf16|fp32",
             "of the weights; fp32 has the exact master weights where the run keeps them", "bf16");
  cli.option("step", "N", "checkpoint to export (default: the newest)");
  const auto arguments = cli.parse(argc, argv);
  if (!arguments) return kExitDone;
  const std::string out = arguments->text("out");
  train::export_checkpoint(run_folder(*arguments), arguments->text("step"),
                           parse_dtype(arguments->text("dtype")), out);
  log_info(fmt::format("exported to {}", out));
  return kExitDone;
}

}  // namespace narrowgauge::app
