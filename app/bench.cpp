#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "app/cli.h"
#include "app/command.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/log.h"
#include "lib/base/text.h"
#include "lib/bench/attention.h"
#include "lib/bench/gemm.h"
#include "lib/bench/kernels.h"
#include "lib/bench/step.h"
#include "lib/bench/tables.h"

namespace narrowgauge::app {
namespace {

constexpr size_t kLongestKernels = 30;

// "4096,8192" of an option.
std::vector<int64_t> integers(const Arguments& arguments, const std::string& name) {
  std::vector<int64_t> numbers;
  const std::string text = arguments.text(name);
  const char* at = text.data();
  const char* end = at + text.size();
  while (at != end) {
    int64_t number = 0;
    const auto [rest, error] = std::from_chars(at, end, number);
    if (error != std::errc() || number < 1 || (rest != end && (*rest != ',' || rest + 1 == end))) {
      throw UserError(fmt::format("--{}: \"{}\" is not allowed: give integers of at least 1, like 4096,8192",
                                  name, text));
    }
    numbers.push_back(number);
    at = rest == end ? end : rest + 1;
  }
  return numbers;
}

// The tables of every result in a folder, as Markdown, in the order of their names.
void render(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  if (files.empty()) {
    throw UserError(fmt::format("bench render: {} holds no .json file; write some with --json", folder));
  }
  std::sort(files.begin(), files.end());
  for (const auto& file : files) {
    const auto result = bench::Json::parse(read_file(file), nullptr, /*allow_exceptions=*/false);
    if (!result.is_object() || !result.contains("bench")) {
      throw UserError(fmt::format("bench render: {} is no result of narrowgauge bench", file.string()));
    }
    for (const bench::Table& table : bench::tables_of(result)) write_stdout(to_markdown(table) + "\n");
  }
}

bench::Json measure(const std::string& what, const Config& config, const Arguments& arguments) {
  if (config.train.deterministic == "auto" && what != "step")
    log_info("train.deterministic is auto: only attention depends on it, and is timed both ways");
  bench::Machine machine(config.memory.budget, config.train.is_deterministic());
  if (what == "kernels") return bench::bench_kernels(machine, config);
  if (what == "gemm") return bench::bench_gemm(machine, config, integers(arguments, "rows"));
  if (what == "attention") return bench::bench_attention(machine, config, integers(arguments, "batch"));
  return bench::bench_step(machine, config,
                           {.steps = arguments.integer("steps", 2, 10000),
                            .warmup = arguments.integer("warmup", 2, 10000),
                            .speed_only = arguments.flag("speed-only"),
                            .launch_delay = arguments.number("launch-delay-us", 0, 1e6),
                            .overlap = !arguments.flag("no-overlap")});
}

}  // namespace

int run_bench(int argc, char** argv) {
  Cli cli(
      "bench", "kernels|gemm|attention|step [CONFIG] [options], or: render FOLDER",
      "Measure on this GPU: every kernel against a copy, bare matrix products, attention, or whole training\n"
      "steps on random tokens. Without CONFIG the model is that of configs/1b-16gb.yaml (977M).");
  cli.positional("what", "kernels, gemm, attention, step, or render");
  cli.positional("config", "YAML file; for render: the folder of results to print as Markdown", false);
  cli.repeated("set", "KEY=VALUE", "override a key of the config, such as train.deterministic=true");
  cli.option("rows", "N,N", "gemm: tokens at once", "4096,8192");
  cli.option("batch", "N,N", "attention: sequences at once", "1,2");
  cli.option("steps", "N", "step: optimizer steps that are measured", "20");
  cli.option("warmup", "N", "step: optimizer steps before them", "3");
  cli.option("launch-delay-us", "N",
             "step: keep the host busy for so long at every launch, as a slow host is", "0");
  cli.flag("no-overlap", "step: no kernel is set up before the one before it has ended");
  cli.flag("speed-only", "step: leave out the breakdown and the wall");
  cli.flag("kernels", "step: also list the 30 kernels that take longest");
  cli.option("json", "FILE", "also write the result there");
  cli.option("commit", "TEXT", "what the result names as its commit");
  const auto arguments = cli.parse(argc, argv);
  if (!arguments) return kExitDone;

  const std::string what = arguments->text("what");
  const std::vector<std::string> kinds{"kernels", "gemm", "attention", "step", "render"};
  if (std::find(kinds.begin(), kinds.end(), what) == kinds.end()) {
    throw UserError(fmt::format("bench: \"{}\" cannot be measured{}; choose one of {}", what,
                                did_you_mean(what, kinds), join(kinds)));
  }
  if (what == "render") {
    render(arguments->given("config") ? arguments->text("config") : "bench");
    return kExitDone;
  }
  const Config config = arguments->given("config")
                            ? load_config(arguments->text("config"), arguments->list("set"))
                            : parse_config("", "the defaults", arguments->list("set"));
  bench::Json result = measure(what, config, *arguments);
  if (arguments->given("commit")) result["commit"] = arguments->text("commit");
  for (const bench::Table& table :
       bench::tables_of(result, arguments->flag("kernels") ? kLongestKernels : 0)) {
    write_stdout(to_text(table) + "\n");
  }
  if (arguments->given("json")) atomic_write_file(arguments->text("json"), result.dump(2) + "\n");
  return kExitDone;
}

}  // namespace narrowgauge::app
