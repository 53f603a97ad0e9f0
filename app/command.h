#pragma once
#include <vector>

namespace narrowgauge::app {

// One subcommand. `run` gets the arguments from its own name on (argv[0] is "train"), declares its options
// with Cli (app/cli.h) and returns the exit code (kExitDone); it throws UserError for what the user can mend,
// and main turns that into one line and exit code 2. Its file is app/NAME.cpp:
//
//   int run_eval(int argc, char** argv) {
//     Cli cli("eval", "RUN [options]", "Measure the loss of a run's newest checkpoint.");
//     cli.positional("run", "folder of the run");
//     cli.option("tokens", "N", "tokens to measure at most", "262144");
//     cli.repeated("set", "KEY=VALUE", "override a key of the config");
//     cli.flag("json", "print one JSON object");
//     const auto arguments = cli.parse(argc, argv);
//     if (!arguments) return kExitDone;  // --help was printed
//     evaluate(arguments->text("run"), arguments->integer("tokens"), arguments->list("set"));
//     return kExitDone;
//   }
struct Command {
  const char* name;
  const char* summary;  // one line for narrowgauge --help
  int (*run)(int argc, char** argv);
};

int run_tokenizer(int argc, char** argv);
int run_prepare(int argc, char** argv);
int run_plan(int argc, char** argv);
int run_tune(int argc, char** argv);
int run_train(int argc, char** argv);
int run_eval(int argc, char** argv);
int run_sample(int argc, char** argv);
int run_export(int argc, char** argv);
int run_config(int argc, char** argv);
int run_bench(int argc, char** argv);

}  // namespace narrowgauge::app
