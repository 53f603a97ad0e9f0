#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/cli.h"
#include "app/command.h"
#include "app/output.h"
#include "app/run.h"
#include "lib/base/error.h"
#include "lib/train/evaluate.h"

namespace narrowgauge::app {
namespace {

// The stream to measure: --data, else data.val, else the part of data.train that training never read.
train::TokenRange tokens_to_measure(const Config& config, const std::string& pattern) {
  if (!pattern.empty()) return train::open_tokens("--data", pattern, config);
  const train::TokenRange val = train::open_corpus(config).val;
  if (!val.dataset)
    throw UserError("the run has no validation data; name a shard, folder or glob with --data");
  return val;
}

}  // namespace

int run_eval(int argc, char** argv) {
  Cli cli("eval", "RUN [options]", "Measure the loss of a run's checkpoint on held-out data.");
  cli.positional("run", "run folder");
  cli.option("step", "N", "checkpoint to measure (default: the newest)");
  cli.option("data", "PATTERN", "shard, folder or glob (default: the run's validation data)");
  cli.option("tokens", "N", "tokens to measure at most (default: train.eval_tokens of the run)");
  cli.option("device", "auto|cuda|cpu", "where to compute (default: as in training)");
  cli.flag("json", "print one JSON object");
  const auto arguments = cli.parse(argc, argv);
  if (!arguments) return kExitDone;

  const train::TrainedModel trained = load_model(*arguments);
  const Config& config = trained.config;
  const train::TokenRange tokens = tokens_to_measure(config, arguments->text("data"));
  const int64_t most =
      arguments->given("tokens") ? arguments->integer("tokens", 1) : config.train.eval_tokens;
  const train::Evaluation result = train::evaluate(
      *trained.model, tokens, config.data, train::resolve_end_of_document(config, *tokens.dataset), most);
  const double bits = result.loss / std::log(2.0);
  if (arguments->flag("json")) {
    nlohmann::ordered_json row = {{"step", trained.step},
                                  {"loss", result.loss},
                                  {"perplexity", result.perplexity()},
                                  {"tokens", result.tokens}};
    if (trained.tokens_are_bytes) row["bits_per_byte"] = bits;
    print(row.dump() + "\n");
  } else {
    print(fmt::format("step {}: loss {:.4f}, perplexity {:.2f}{} over {} tokens\n", trained.step, result.loss,
                      result.perplexity(),
                      trained.tokens_are_bytes ? fmt::format(", {:.3f} bits per byte", bits) : "",
                      result.tokens));
  }
  return kExitDone;
}

}  // namespace narrowgauge::app
