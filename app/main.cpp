#include <fmt/format.h>

#include <string>
#include <vector>

#include "app/command.h"
#include "app/crash.h"
#include "app/output.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/log.h"
#include "lib/base/text.h"
#include "lib/base/version.h"
#include "lib/train/device.h"

namespace narrowgauge::app {
namespace {

const std::vector<Command> kCommands{
    {"tokenizer", "train a SentencePiece tokenizer on text", run_tokenizer},
    {"prepare", "turn text into token shards", run_prepare},
    {"plan", "find the fastest setting of a run that fits into a card's memory", run_plan},
    {"tune", "run the best settings of a plan for real and keep the fastest", run_tune},
    {"train", "train a model from a config file, or resume a run", run_train},
    {"eval", "measure the loss of a run", run_eval},
    {"sample", "let a run write text", run_sample},
    {"export", "write a run as a Hugging Face folder", run_export},
    {"config", "check a config file and print it in full, or explain every key", run_config},
    {"bench", "measure kernels, matrix products, attention or whole steps on this GPU", run_bench},
};

std::string help() {
  std::string text =
      "usage: narrowgauge COMMAND [arguments]\n\n"
      "Pretrain language models of about a billion parameters on one consumer GPU.\n\ncommands:\n";
  for (const Command& command : kCommands) text += fmt::format("  {:<11}{}\n", command.name, command.summary);
  return text +
         "\noptions:\n  --help     print this text\n  --version  print the version\n\n"
         "narrowgauge COMMAND --help explains a command.\n";
}

int dispatch(int argc, char** argv) {
  if (argc < 2) throw UserError("no command was given; narrowgauge --help lists them");
  const std::string word = argv[1];
  if (word == "--help" || word == "-h" || word == "help") {
    print(help());
    return kExitDone;
  }
  if (word == "--version") {
    print(fmt::format("narrowgauge {} ({})\n", kVersion,
                      NARROWGAUGE_CUDA ? "with CUDA" : "without CUDA: CPU only"));
    return kExitDone;
  }
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    if (word == command.name) return command.run(argc - 1, argv + 1);
    names.emplace_back(command.name);
  }
  throw UserError(fmt::format("unknown command \"{}\"{}; narrowgauge --help lists them", word,
                              did_you_mean(word, names)));
}

}  // namespace
}  // namespace narrowgauge::app

// Only UserError (and memory that ran out) is caught here: anything else is a bug, whose stack the crash
// report prints.
int main(int argc, char** argv) {
  narrowgauge::app::hold_standard_descriptors();
  narrowgauge::ignore_file_signals();
  narrowgauge::app::install_crash_report();
  try {
    int code = narrowgauge::kExitDone;
    narrowgauge::train::name_memory_errors([&] { code = narrowgauge::app::dispatch(argc, argv); });
    return code;
  } catch (const narrowgauge::UserError& error) {
    narrowgauge::log_error(error.what());
    return narrowgauge::kExitUserError;
  }
}
