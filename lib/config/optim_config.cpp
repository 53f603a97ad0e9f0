#include "lib/config/optim_config.h"

#include "lib/config/key_types.h"

namespace narrowgauge {

ConfigSection optim_section() {
  using O = OptimConfig;
  constexpr Range kBeta{.least = 0, .most = 1, .below = true};
  SectionRows<O> rows("optim", "AdamW, its learning rate and its states.", &Config::optim);
  rows.number("lr", &O::lr, at_least(0), "", "Peak learning rate.");
  rows.number("min_lr", &O::min_lr, between(0, 1), "of lr", "Learning rate at the schedule's end.");
  rows.choice("schedule", &O::schedule, {"cosine", "linear", "wsd", "constant"},
              "Course of the learning rate after warmup; wsd holds the peak and decays linearly at the end.");
  rows.integer("warmup_steps", &O::warmup_steps, at_least(0), "steps", "Linear rise from 0 to the peak.");
  rows.integer("schedule_steps", &O::schedule_steps, at_least(0), "steps",
               "Length of the schedule, whatever train.steps is; 0: train.steps.");
  rows.number("decay_fraction", &O::decay_fraction, {.least = 0, .most = 1, .above = true}, "of the schedule",
              "Last part of a wsd schedule, in which the rate falls.");
  rows.number("beta1", &O::beta1, kBeta, "", "Decay of the mean of gradients.");
  rows.number("beta2", &O::beta2, kBeta, "", "Decay of the mean of squared gradients.");
  rows.number("eps", &O::eps, above(0), "", "Added to the root of the mean square.");
  rows.number("weight_decay", &O::weight_decay, at_least(0), "", "Decoupled weight decay; never on norms.");
  rows.boolean("decay_embedding", &O::decay_embedding, "Decay the embedding and an untied head, too.");
  rows.number("grad_clip", &O::grad_clip, at_least(0), "",
              "Largest global norm of the gradient, scaled down beyond it; 0: no clipping.");
  rows.choice("state", &O::state, {"8bit", "fp32"}, "How both AdamW means of matrices are stored.");
  rows.choice("embedding_state", &O::embedding_state, {"8bit", "fp32"},
              "The same for the embedding and an untied head.");
  rows.integer("min_8bit_size", &O::min_8bit_size, at_least(0), "elements",
               "Smaller tensors keep fp32 states.");
  rows.choice(
      "master", &O::master, {"stochastic", "split", "fp32"},
      "How updates below bf16's precision survive: stochastic rounding (0 bytes a parameter), the exact "
      "fp32 weight split into bf16 and a 16-bit remainder (2), or an fp32 copy (4).");
  rows.integer("max_skips", &O::max_skips, at_least(1), "steps",
               "So many skipped steps in a row (gradient not finite) stop the run with a checkpoint.");
  return rows.take();
}

}  // namespace narrowgauge
