#include "lib/data/prepare.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>

#include "app/cli.h"
#include "app/command.h"
#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/units.h"

namespace narrowgauge::app {
namespace {

volatile sig_atomic_t interrupted = 0;

// Without SA_RESTART, so that a read that waits for a pipe comes back.
void stop_on_signals() {
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = 1; };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

std::string describe(const data::PrepareCounts& counts, double seconds) {
  return fmt::format("{} of text, {} documents, {} tokens, {:.1f} MB/s", format_bytes(counts.bytes),
                     counts.documents, format_count(static_cast<double>(counts.tokens)),
                     static_cast<double>(counts.bytes) / 1e6 / std::max(seconds, 1e-3));
}

int verify(const std::string& pattern) {
  const int64_t tokens = data::verify_shards(pattern);
  log_info(fmt::format("{}: {} tokens, all shards are whole", pattern, tokens));
  return kExitDone;
}

// Options that would do nothing beside the others.
void refuse_useless(const Arguments& arguments) {
  if (arguments.given("verify")) {
    for (const char* name : {"input", "tokenizer", "out", "jsonl", "field", "shard-tokens", "overwrite"}) {
      if (!arguments.given(name)) continue;
      throw UserError(
          fmt::format("prepare: --verify writes nothing, so --{} has no use: leave one of them out", name));
    }
  }
  if (arguments.given("field") && !arguments.flag("jsonl")) {
    throw UserError(
        fmt::format("prepare: --field {} names a key of JSON lines: add --jsonl, or leave it out "
                    "when the input is plain text",
                    arguments.text("field")));
  }
}

}  // namespace

int run_prepare(int argc, char** argv) {
  Cli cli("prepare", "--input FILE|FOLDER|- --tokenizer byte|FILE.model --out DIR [options]",
          "Turn text into token shards: the data that train reads.");
  cli.repeated("input", "PATH", "text file, folder of text files, or - for standard input");
  cli.option("tokenizer", "NAME", "byte, or a SentencePiece .model file", "byte");
  cli.option("out", "DIR", "folder to write: shards and the tokenizer");
  cli.flag("jsonl", "the input is JSON lines, a document each; otherwise every file is one document");
  cli.option("field", "KEY", "the text's key in JSON lines", "text");
  cli.option("shard-tokens", "N", "tokens of a shard", "100000000");
  cli.flag("overwrite", "replace a folder of shards that exists");
  cli.option("verify", "DIR", "write nothing: check every shard of this folder against its checksum");
  const auto arguments = cli.parse(argc, argv);
  if (!arguments) return kExitDone;
  refuse_useless(*arguments);
  if (arguments->given("verify")) return verify(arguments->text("verify"));

  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  data::PrepareOptions options;
  options.inputs = arguments->list("input");
  options.jsonl = arguments->flag("jsonl");
  options.field = arguments->text("field");
  options.tokenizer = arguments->text("tokenizer");
  options.out = arguments->text("out");
  options.shard_tokens = arguments->integer("shard-tokens", 1);
  options.overwrite = arguments->flag("overwrite");
  options.stop = [] { return interrupted != 0; };
  options.on_progress = [&](const data::PrepareCounts& counts) { show_status(describe(counts, seconds())); };
  stop_on_signals();
  const auto counts = data::prepare(options);
  show_status("");
  log_info(fmt::format("{}: {}, {} shards, {}", options.out.string(), describe(counts, seconds()),
                       counts.shards, format_duration(seconds())));
  return kExitDone;
}

}  // namespace narrowgauge::app
