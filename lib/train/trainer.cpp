#include "lib/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/interruption.h"
#include "lib/base/log.h"
#include "lib/base/units.h"
#include "lib/optim/schedule.h"
#include "lib/train/evaluate.h"
#include "lib/train/memory_report.h"
#include "lib/train/recovery.h"
#include "lib/train/rehearsal.h"
#include "lib/train/reporter.h"
#include "lib/train/sample.h"
#include "lib/train/session.h"
#include "lib/train/signals.h"
#include "lib/train/slow_steps.h"
#include "lib/train/start_report.h"

namespace narrowgauge::train {
namespace {

constexpr int64_t kMemoryReportStep = 2;  // of this program run: every buffer exists by then
constexpr double kPlanTolerance = 0.03;   // of the predicted bytes

// The loop. It decides when; the parts do.
class Trainer {
 public:
  explicit Trainer(const TrainRequest& request)
      : request_(request),
        session_(request),
        config_(session_.config),
        signals_(config_.train.stop_grace),
        reporter_(session_.folder, config_, session_.device, *session_.memory, session_.position.step),
        loader_(session_.make_loader()),
        recovery_(session_, [this](const plan::Plan& plan) { adopt(plan); }),
        watches_(session_.device.device.is_cuda() || request.probe),
        residency_(request.probe ? request.probe
                                 : [this] { return read_resident(*session_.model, *session_.optimizer); }) {
    if (session_.position.step > 0) saved_step_ = session_.position.step;  // what was resumed is on disk
  }

  void run() {
    report_start(session_, request_, reporter_);
    const int64_t first = session_.position.step;
    std::string reason;
    try {
      prepare();
      restart_clock();
      while ((reason = reason_to_stop()).empty() && train_step()) {
        if (session_.position.step == first + kMemoryReportStep) report_memory();
        at_boundary();
      }
    } catch (const UserError& error) {
      leave(error, first);
      throw;
    }
    finish(reason.empty() ? signals_.name() : reason);
  }

 private:
  [[nodiscard]] std::string reason_to_stop() const {
    const TrainConfig& train = config_.train;
    if (signals_.requested()) return signals_.name();
    if (skipped_in_row_ >= config_.optim.max_skips) return "optim.max_skips";
    if (session_.position.step >= train.steps) return "train.steps";
    if (train.max_tokens > 0 && session_.position.tokens >= train.max_tokens) return "train.max_tokens";
    if (train.max_hours > 0 && reporter_.seconds() >= train.max_hours * 3600) return "train.max_hours";
    return "";
  }

  // Builds the step and, with a plan, rehearses the run.
  void prepare() {
    recovery_.attempt("before step 1", [this] {
      session_.reserve_slab();
      make_step();
      if (session_.planner->active()) unless_interrupted("rehearsal", [this] { rehearse(session_, *step_); });
    });
  }

  void make_step() {
    step_.emplace(*session_.model, *session_.optimizer, session_.sequences(), config_.train.micro_batch,
                  session_.cuda_graphs);
  }

  void adopt(const plan::Plan& plan) {
    if (step_) flush();
    step_.reset();
    session_.adopt(plan);
    make_step();
    report_plan(session_, reporter_);
    restart_clock();
    slow_.restart();
  }

  // False when a stop dropped the step.
  bool train_step() {
    Position& position = session_.position;
    const double waited = loader_->wait_seconds();
    const data::GlobalBatch& batch = loader_->next();
    const int64_t schedule =
        config_.optim.schedule_steps > 0 ? config_.optim.schedule_steps : config_.train.steps;
    const double rate = optim::learning_rate(config_.optim, schedule, position.step);
    const cuda::StepInput input{
        .learning_rate = static_cast<float>(rate),
        .inverse_tokens = 1.0F / static_cast<float>(std::max<int64_t>(1, batch.counted_targets)),
        .seed = static_cast<uint64_t>(config_.train.seed),
        .step = static_cast<uint64_t>(position.step)};
    const double begin = reporter_.seconds();
    bool done = false;
    recovery_.attempt(fmt::format("step {}", position.step + 1), [&] {
      if (request_.before_step) request_.before_step(position.step + 1);
      done = step_->run(batch, input, [&](double fraction) { return worth_finishing(begin, fraction); });
    });
    if (!done) {
      log_info(fmt::format("{}: the step would take longer than train.stop_grace, its gradients are dropped",
                           signals_.name()));
      return false;
    }
    // The position first: reporting may fail, and what is saved then must be this step.
    position.step += 1;
    position.tokens += batch.sequences * batch.context;
    position.sequences += batch.sequences;
    const auto previous =
        std::exchange(queued_, QueuedStep{.step = position.step,
                                          .counted = batch.counted_targets,
                                          .tokens = position.tokens,
                                          .learning_rate = rate,
                                          .data_wait_ms = (loader_->wait_seconds() - waited) * 1e3});
    if (previous) report(*previous, step_->previous());
    watch_pace();
    return true;
  }

  // Steps that have become slow may be a sign that the driver has moved memory to the host.
  void watch_pace() {
    const double now = reporter_.seconds();
    const std::optional<double> before = std::exchange(step_end_, now);
    if (!watches_ || !before || !slow_.add(now - *before)) return;
    const double usual = slow_.median();
    flush();
    slow_.restart();
    const int64_t spilled = residency_.spilled_bytes();
    const std::string what =
        fmt::format("step {}: {} steps in a row took more than {} times the usual {:.2f} s",
                    session_.position.step, SlowSteps::kInARow, SlowSteps::kSlow, usual);
    if (spilled > 0) {
      recovery_.shrink(
          fmt::format("{}, and {} of device memory answer as slowly as memory of the host: another "
                      "program took them",
                      what, format_bytes(spilled)),
          spilled);
    } else {
      log_info(what + "; device memory is as fast as before, so something else keeps the GPU busy");
    }
    restart_clock();
  }

  void restart_clock() {
    reporter_.restart_clock();
    step_end_.reset();
  }

  // Asked between micro-batches: true unless a signal came and the rest of the step would outlast the grace.
  [[nodiscard]] bool worth_finishing(double begin, double fraction) const {
    if (!signals_.requested()) return true;
    const double spent = reporter_.seconds() - begin;
    // On a GPU the host is a few micro-batches ahead of the device, at the start of a step as now.
    const double whole =
        std::max(fraction > 0 ? spent / fraction : 0.0, reporter_.seconds_per_step().value_or(0));
    return whole * (1 - fraction) < seconds_to_interruption();
  }

  void report(const QueuedStep& queued, const StepResult& result) {
    reporter_.step(queued, result);
    skipped_in_row_ = result.state.skipped_in_row;
    last_loss_ = result.loss_sum / static_cast<double>(std::max<int64_t>(1, queued.counted));
  }

  // Waits for the device and reports the last step.
  void flush() {
    if (queued_) report(*queued_, step_->latest());
    queued_.reset();
  }

  void report_memory() {
    flush();
    session_.memory->tighten();
    const MemoryPeaks peaks = session_.memory->sample();
    reporter_.memory(session_.position.step, memory_by_category(session_, peaks));
    compare_with_plan(peaks);
    if (watches_) residency_.calibrate();
    restart_clock();
  }

  // Plans again, once, with what was measured, if the plan was wrong.
  void compare_with_plan(const MemoryPeaks& peaks) {
    const std::optional<plan::Plan> plan = session_.plan();
    if (!plan || !session_.device.device.is_cuda()) return;
    const double off = static_cast<double>(peaks.device) / static_cast<double>(plan->memory.bytes()) - 1;
    log_info(fmt::format("plan: {} of device memory predicted, {} measured ({:+.1f} %)",
                         format_bytes(plan->memory.bytes()), format_bytes(peaks.device), 100 * off));
    session_.planner->learn(peaks.device - peaks.reserved, *session_.model);
    if (std::abs(off) <= kPlanTolerance) return;
    const auto better = session_.planner->within(session_.memory->budget(), config_);
    if (!better || better->choice == plan->choice) return;
    recovery_.attempt("the second plan", [&] {
      if (plan::choice_of(config_) != better->choice) adopt(*better);
    });
  }

  void at_boundary() {
    const TrainConfig& train = config_.train;
    const int64_t step = session_.position.step;
    const auto every = [&](int64_t interval) { return interval > 0 && step % interval == 0; };
    const bool evaluate_now = session_.corpus.val.dataset &&
                              (every(train.eval_every) || step == train.steps) && train.eval_every > 0;
    const bool sample_now = every(train.sample_every);
    const bool asked = session_.folder.take_save_request();
    const bool save_now = every(train.save_every) || asked;
    if (!evaluate_now && !sample_now && !save_now) return;
    flush();
    if (evaluate_now) with_memory("evaluation", [&] { evaluate_model(); });
    if (sample_now) with_memory("sample", [&] { sample_model(); });
    if (save_now) save();
    restart_clock();
  }

  void with_memory(const char* what, const std::function<void()>& work) {
    unless_interrupted(what, [&] { recovery_.attempt(what, work); });
  }

  void unless_interrupted(const char* what, const std::function<void()>& work) {
    try {
      work();
    } catch (const Interrupted&) {
      log_info(fmt::format("{}: the {} takes longer than train.stop_grace and is given up", signals_.name(),
                           what));
    }
  }

  void evaluate_model() {
    const Corpus& corpus = session_.corpus;
    const Evaluation result = evaluate(*session_.model, corpus.val, config_.data, corpus.end_of_document,
                                       config_.train.eval_tokens);
    reporter_.event("eval", session_.position.step,
                    {{"loss", result.loss}, {"perplexity", result.perplexity()}, {"tokens", result.tokens}});
    log_info(fmt::format("step {}: validation loss {:.4f}, perplexity {:.2f} over {} tokens",
                         session_.position.step, result.loss, result.perplexity(), result.tokens));
  }

  void sample_model() {
    const SampleText sample = sample_text(*session_.model, session_.corpus, config_.train);
    reporter_.event("sample", session_.position.step, {{"prompt", sample.prompt}, {"text", sample.text}});
    log_info(fmt::format("step {}: sample: {}{}", session_.position.step, sample.prompt, sample.text));
  }

  void save() {
    const int64_t step = session_.position.step;
    if (saved_step_ == step) return;
    saved_step_ = step;
    const double begin = reporter_.seconds();
    session_.save();
    const double seconds = reporter_.seconds() - begin;
    const std::string folder = session_.folder.checkpoints().folder(step).string();
    reporter_.event("checkpoint", step, {{"folder", folder}, {"seconds", seconds}});
    log_info(fmt::format("saved {} in {}", folder, format_duration(seconds)));
  }

  // After an error in the loop, which began at step `first`: saves what was finished. UserError that names
  // both errors when that fails too.
  void leave(const UserError& error, int64_t first) {
    const int64_t step = session_.position.step;
    try {
      reporter_.clear_line();
      if (step > first) save();
      flush();
      reporter_.event("stop", step, {{"reason", error.what()}, {"seconds", reporter_.seconds()}});
    } catch (const UserError& second) {
      throw UserError(
          fmt::format("{}; and then leaving at step {} failed: {}", error.what(), step, second.what()));
    }
  }

  void finish(const std::string& reason) {
    flush();
    reporter_.clear_line();
    const bool gave_up = skipped_in_row_ >= config_.optim.max_skips;
    const int64_t step = session_.position.step;
    save();
    reporter_.memory(step);
    reporter_.event("stop", step, {{"reason", reason}, {"seconds", reporter_.seconds()}});
    if (gave_up) {
      throw UserError(
          fmt::format("the gradient was not finite in {} steps in a row (optim.max_skips is {}); step {} is "
                      "saved; lower optim.lr, lengthen optim.warmup_steps or look at the data",
                      skipped_in_row_, config_.optim.max_skips, step));
    }
    const std::string loss = last_loss_ ? fmt::format(", loss {:.4f}", *last_loss_) : "";
    log_info(fmt::format("stopped at step {} of {} ({}) after {}{}", step, config_.train.steps, reason,
                         format_duration(reporter_.seconds()), loss));
  }

  const TrainRequest& request_;
  Session session_;
  const Config& config_;
  StopSignals signals_;
  Reporter reporter_;
  std::optional<Step> step_;
  std::unique_ptr<data::Loader> loader_;
  Recovery recovery_;
  bool watches_;  // whether what lies in device memory stays there
  SlowSteps slow_;
  Residency residency_;
  std::optional<double> step_end_;    // of the step before; nothing: something else came in between
  std::optional<QueuedStep> queued_;  // the step whose result has not been read
  int64_t skipped_in_row_ = 0;
  int64_t saved_step_ = -1;  // or tried in vain, which ends the run
  std::optional<double> last_loss_;
};

}  // namespace

void train(const TrainRequest& request) { Trainer(request).run(); }

}  // namespace narrowgauge::train
