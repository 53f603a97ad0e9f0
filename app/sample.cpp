#include <fmt/format.h>

#include <chrono>

#include "app/cli.h"
#include "app/command.h"
#include "app/output.h"
#include "app/run.h"
#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/units.h"
#include "lib/model/generate.h"
#include "lib/train/text_stream.h"

namespace narrowgauge::app {

int run_sample(int argc, char** argv) {
  Cli cli("sample", "RUN --prompt TEXT [options]", "Continue a text with a trained model.");
  cli.positional("run", "run folder");
  cli.option("prompt", "TEXT", "text to continue; token ids such as \"12 7\" when the run has no tokenizer");
  cli.option("tokens", "N", "tokens to draw", "200");
  cli.option("temperature", "T", "0: always the likeliest token", "0.8");
  cli.option("top-k", "K", "draw from the K likeliest tokens; 0: all", "50");
  cli.option("top-p", "P", "draw from the likeliest tokens that make up this probability; 1: all", "0.95");
  cli.option("seed", "N", "same seed, same text", "1");
  cli.option("step", "N", "checkpoint to use (default: the newest)");
  cli.option("device", "auto|cuda|cpu", "where to compute (default: as in training)");
  const auto arguments = cli.parse(argc, argv);
  if (!arguments) return kExitDone;

  model::SampleOptions options{.max_tokens = arguments->integer("tokens", 1),
                               .temperature = arguments->number("temperature", 0, 100),
                               .top_k = arguments->integer("top-k", 0),
                               .top_p = arguments->number("top-p", 0, 1),
                               .seed = static_cast<uint64_t>(arguments->integer("seed", 0)),
                               .stop_token = -1,
                               .end_of_document = -1};
  const train::TrainedModel trained = load_model(*arguments);
  const data::Tokenizer* tokenizer = trained.tokenizer.get();
  if (tokenizer == nullptr) log_info("the run has no tokenizer: the prompt and the text are token ids");
  const int32_t end_of_document = tokenizer == nullptr
                                      ? static_cast<int32_t>(trained.config.data.end_of_document)
                                      : tokenizer->end_of_document();
  options.end_of_document = end_of_document;
  const std::vector<int32_t> prompt = train::prompt_tokens(arguments->text("prompt"), tokenizer,
                                                           trained.config.model.vocab_size, end_of_document);

  train::TextStream stream(tokenizer);
  print(arguments->text("prompt"));
  if (tokenizer == nullptr) print(" ");
  const auto begin = std::chrono::steady_clock::now();
  const auto drawn =
      model::generate(*trained.model, prompt, options, [&](int32_t id) { print(stream.push(id)); });
  print(stream.finish() + "\n");
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  log_info(fmt::format("{} tokens in {}, {} tokens/s", drawn.size(), format_duration(seconds),
                       format_count(static_cast<double>(drawn.size()) / seconds)));
  return kExitDone;
}

}  // namespace narrowgauge::app
