#include "lib/data/tokenizer.h"

#include <fmt/format.h>

#include "app/cli.h"
#include "app/command.h"
#include "lib/base/error.h"
#include "lib/base/log.h"

namespace narrowgauge::app {

int run_tokenizer(int argc, char** argv) {
  Cli cli("tokenizer", "train --input FILE --vocab N --out FILE.model",
          "Train a SentencePiece BPE tokenizer.");
  cli.positional("action", "train");
  cli.required_option("input", "FILE", "text to learn from");
  cli.option("vocab", "N", "tokens of the vocabulary, with 256 bytes and 3 special tokens", "32000");
  cli.required_option("out", "FILE", "the .model file to write");
  cli.flag("overwrite", "replace the file when it exists");
  // Before the options, which belong to train.
  if (const std::string action = argc > 1 ? argv[1] : ""; action != "train" && !action.starts_with('-')) {
    throw UserError(
        fmt::format("tokenizer: {}; the one action is train: narrowgauge tokenizer train --input "
                    "FILE --out FILE.model",
                    action.empty() ? "no action was given" : fmt::format("unknown action \"{}\"", action)));
  }
  const auto arguments = cli.parse(argc, argv);
  if (!arguments) return kExitDone;
  if (arguments->text("action") != "train") {
    throw UserError(
        fmt::format("tokenizer: unknown action \"{}\"; the one action is train", arguments->text("action")));
  }
  const std::string out = arguments->text("out");
  const int64_t asked = arguments->integer("vocab", 1, 1'000'000);
  const int64_t got =
      data::train_sentencepiece(arguments->text("input"), asked, out, arguments->flag("overwrite"));
  if (got < asked) {
    log_warn(fmt::format("{} tokens were asked for, but the text yields {}; set model.vocab_size accordingly",
                         asked, got));
  }
  log_info(fmt::format("{}: {} tokens", out, got));
  return kExitDone;
}

}  // namespace narrowgauge::app
