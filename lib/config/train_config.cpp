#include "lib/config/train_config.h"

#include "lib/config/key_types.h"

namespace narrowgauge {

ConfigSection train_section() {
  using T = TrainConfig;
  SectionRows<T> rows("train", "The run: how long, on what, and what it writes.", &Config::train);
  rows.integer("steps", &T::steps, at_least(1), "optimizer steps",
               "Length of the run, all resumes together.");
  rows.automatic_integer("micro_batch", &T::micro_batch, between(1, 1 << 20), "sequences",
                         "Sequences in one forward and backward pass.");
  rows.integer("tokens_per_step", &T::tokens_per_step, between(1, int64_t{1} << 32), "tokens",
               "Global batch of one optimizer step, whatever the micro-batch.");
  rows.integer("seed", &T::seed, at_least(0), "", "Seed of weights, data order, rounding and samples.");
  rows.choice("device", &T::device, {"auto", "cuda", "cpu"},
              "Where to train; auto: a GPU when there is one.");
  rows.choice("dtype", &T::dtype, {"bf16", "fp32"}, "Type of weights and activations.");
  rows.choice("deterministic", &T::deterministic, {"auto", "true", "false"},
              "The same config, seed and GPU give the same bits; auto: if that costs at most 3 % of a step.");
  rows.choice("attention", &T::attention, {"auto", "flash", "cudnn", "math"},
              "Kernel of attention; auto: the fastest that can do the job, timed once a shape and card.");
  rows.choice("cuda_graphs", &T::cuda_graphs, {"auto", "on", "off"},
              "Record the kernels of a step once and replay them, which spares the host; auto: on a GPU.");
  rows.boolean("tune_kernels", &T::tune_kernels,
               "Time the matrix products of a bf16 run on a GPU once and use the fastest algorithms.");
  rows.number("z_loss", &T::z_loss, at_least(0), "",
              "Weight of the squared log-sum-exp in what is trained; the reported loss is without it.");
  rows.integer("save_every", &T::save_every, at_least(0), "steps",
               "Distance of checkpoints; 0: only at the end.");
  rows.integer("keep_last", &T::keep_last, at_least(1), "checkpoints", "Newest checkpoints that stay.");
  rows.integer("keep_every", &T::keep_every, at_least(0), "steps",
               "Checkpoints at multiples of it always stay; 0: none.");
  rows.integer("eval_every", &T::eval_every, at_least(0), "steps", "Distance of evaluations; 0: never.");
  rows.integer("eval_tokens", &T::eval_tokens, at_least(1), "tokens", "Largest size of one evaluation.");
  rows.integer("sample_every", &T::sample_every, at_least(0), "steps", "Distance of text samples; 0: never.");
  rows.integer("sample_tokens", &T::sample_tokens, at_least(1), "tokens", "Length of one text sample.");
  rows.text("sample_prompt", &T::sample_prompt, "Text that a sample continues.");
  rows.number("max_hours", &T::max_hours, at_least(0), "hours",
              "Wall-clock time after which this start of the run saves and ends; 0: no limit.");
  rows.integer("max_tokens", &T::max_tokens, at_least(0), "tokens",
               "Tokens after which the run saves and ends, all resumes together; 0: no limit.");
  rows.number(
      "stop_grace", &T::stop_grace, at_least(0), "seconds",
      "On Ctrl-C a step, evaluation or sample is finished if that takes no longer; else it is dropped.");
  return rows.take();
}

}  // namespace narrowgauge
