#include "lib/plan/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lib/base/error.h"
#include "lib/base/units.h"

namespace narrowgauge::plan {
namespace {

using nlohmann::ordered_json;

double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

std::string choice_text(const Choice& choice) {
  return fmt::format("micro-batch {}, recompute {}", choice.micro_batch, levels_text(choice.levels));
}

// All of a table in one unit.
class Amounts {
 public:
  explicit Amounts(const Plan& plan) : gibibytes_(plan.memory.bytes() >= int64_t{4} << 30) {}
  [[nodiscard]] std::string operator()(int64_t bytes) const {
    const double mebibytes = static_cast<double>(bytes) / 1048576;
    return gibibytes_ ? fmt::format("{:.2f} GiB", mebibytes / 1024) : fmt::format("{:.1f} MiB", mebibytes);
  }

 private:
  bool gibibytes_;
};

std::string memory_rows(const Report& report) {
  const MemoryUse& memory = report.plan.memory;
  const Amounts amount(report.plan);
  std::string text = fmt::format("\nDevice memory at the peak ({}):\n", memory.moments[memory.peak].name);
  for (int i = 0; i < kKinds; ++i) {
    const auto kind = static_cast<Kind>(i);
    const int64_t bytes = memory.at_peak()[kind];
    if (bytes == 0) continue;
    const bool guess = kind == Kind::outside && !report.outside_measured;
    text += fmt::format("  {:<24}{:>10}{}\n", kind_name(kind), amount(bytes), guess ? "  estimate" : "");
  }
  text += fmt::format("  {:<24}{:>10}\n", "sum", amount(memory.bytes()));
  text += fmt::format("  {:<24}{:>10}  {}\n", "budget", amount(report.plan.budget), report.budget_rule);
  text += fmt::format("  {:<24}{:>10}\n", "margin", amount(report.plan.margin()));
  text += "  other moments:";
  const char* separator = " ";
  for (size_t i = 0; i < memory.moments.size(); ++i) {
    if (i == memory.peak) continue;
    text += fmt::format("{}{} {}", separator, memory.moments[i].name, amount(memory.moments[i].bytes.sum()));
    separator = ", ";
  }
  return text + "\n";
}

std::string time_rows(const Report& report) {
  const StepTime& time = report.plan.time;
  const char* mark = report.plan.estimated ? " (estimate: rates from the table of cards)"
                                           : " (from rates measured on this card)";
  std::string text = fmt::format("\nAn optimizer step takes {:.0f} ms{}:\n", 1e3 * time.total(), mark);
  const auto row = [&](const char* name, double seconds) {
    text +=
        fmt::format("  {:<24}{:>7.1f} ms{:>7.1f} %\n", name, 1e3 * seconds, percent(seconds, time.total()));
  };
  row("matrix products", time.products);
  row("attention", time.attention);
  row("norms, RoPE, SwiGLU", time.elementwise);
  row("loss and embedding", time.loss + time.embedding);
  row("optimizer", time.optimizer);
  row("gaps between kernels", time.gaps);
  row("of it recomputing", time.recompute);
  return text;
}

// Why `candidate` is not the plan.
std::string why(const Report& report, const Candidate& candidate, bool fits) {
  const Plan& plan = report.plan;
  if (!fits) return fmt::format("needs {} more", format_bytes(candidate.bytes - plan.budget));
  return fmt::format("{:.2f} % slower", percent(candidate.seconds - plan.time.total(), plan.time.total()));
}

std::string candidate_row(const Report& report, const Candidate& candidate, bool fits) {
  const double tokens = static_cast<double>(report.plan.config.train.tokens_per_step);
  const Amounts amount(report.plan);
  return fmt::format("  {:>7} tokens/s  {:>9}  {:<22}{}\n", fmt::format("{:.0f}", tokens / candidate.seconds),
                     amount(candidate.bytes), why(report, candidate, fits), choice_text(candidate.choice));
}

ordered_json levels_json(const std::vector<RecomputeLevel>& levels) {
  ordered_json list = ordered_json::array();
  for (const RecomputeLevel level : levels) list.push_back(recompute_name(level));
  return list;
}

ordered_json candidate_json(const Report& report, const Candidate& candidate) {
  const double tokens = static_cast<double>(report.plan.config.train.tokens_per_step);
  return {{"micro_batch", candidate.choice.micro_batch},
          {"recompute", levels_json(candidate.choice.levels)},
          {"loss_chunk", candidate.choice.loss_chunk},
          {"bytes", candidate.bytes},
          {"seconds", candidate.seconds},
          {"tokens_per_second", tokens / candidate.seconds}};
}

ordered_json bytes_json(const Bytes& bytes) {
  ordered_json object = ordered_json::object();
  for (int i = 0; i < kKinds; ++i) object[kind_name(static_cast<Kind>(i))] = bytes[static_cast<Kind>(i)];
  object["sum"] = bytes.sum();
  return object;
}

}  // namespace

double Report::mfu() const {
  if (card_flops <= 0 || plan.config.train.dtype != "bf16") return 0;
  return plan.tokens_per_second * model_flops_per_token(plan.config.model, plan.config.data.context) /
         card_flops;
}

Report make_report(const Request& request, const Rates& rates, const Card& card) {
  constexpr size_t kNext = 3;
  Request wider = request;
  wider.candidates = kNext + 1;
  const std::vector<Candidate> found = search(wider, rates);
  if (found.empty()) throw UserError(shortfall(request, rates));
  Report report{.plan = plan_of(request, rates, found.front().choice),
                .card = std::string(card.name),
                .card_flops = card.flops(),
                .budget_rule = {},
                .outside_measured = request.surroundings.outside_measured,
                .next = {found.begin() + 1, found.end()},
                .losers = losers(request, rates, found.front()),
                .temptations = temptations(request, rates, found.front())};
  return report;
}

std::string report_text(const Report& report) {
  const Plan& plan = report.plan;
  const Config& config = plan.config;
  const char* mark = plan.estimated ? " (estimate)" : "";
  std::string text = fmt::format("{} parameters, context {}, {} tokens a step on {}\n\n",
                                 format_count(static_cast<double>(config.model.parameter_count())),
                                 config.data.context, config.train.tokens_per_step, report.card);
  text += fmt::format("  micro-batch  {} of {} sequences\n", plan.choice.micro_batch, sequences(config));
  text += fmt::format("  recompute    {}\n", levels_text(plan.choice.levels));
  text += fmt::format("  loss chunk   {} tokens\n", plan.choice.loss_chunk);
  text += fmt::format("  speed        {} tokens/s{}", format_count(plan.tokens_per_second), mark);
  text += report.mfu() > 0 ? fmt::format(", MFU {:.1f} %{}\n", 100 * report.mfu(), mark) : "\n";
  text += memory_rows(report) + time_rows(report);
  if (!report.next.empty()) {
    text += "\nThe next fastest that fit:\n";
    for (const Candidate& candidate : report.next) text += candidate_row(report, candidate, true);
  }
  if (!report.losers.empty()) {
    text += "\nWhy not another way:\n";
    for (const Loser& loser : report.losers) text += candidate_row(report, loser.candidate, loser.fits);
  }
  if (!report.temptations.empty()) {
    text += "\nFaster, but for you to decide:\n";
    for (const Change& change : report.temptations) {
      const double gain = plan.time.total() / change.candidate.seconds - 1;
      text += fmt::format("  +{:.1f} %  --set {}  ({})\n", 100 * gain, change.setting,
                          choice_text(change.candidate.choice));
    }
  }
  return text;
}

ordered_json report_json(const Report& report) {
  const Plan& plan = report.plan;
  ordered_json moments = ordered_json::object();
  for (const Moment& moment : plan.memory.moments) moments[moment.name] = bytes_json(moment.bytes);
  const StepTime& time = plan.time;
  ordered_json root{{"card", report.card},
                    {"estimated", plan.estimated},
                    {"plan", candidate_json(report, {plan.choice, plan.memory.bytes(), time.total()})},
                    {"mfu", report.mfu() > 0 ? ordered_json(report.mfu()) : ordered_json()},
                    {"budget", plan.budget},
                    {"margin", plan.margin()},
                    {"slab", plan.memory.slab},
                    {"peak", plan.memory.moments[plan.memory.peak].name},
                    {"memory", moments},
                    {"seconds",
                     {{"products", time.products},
                      {"attention", time.attention},
                      {"elementwise", time.elementwise},
                      {"loss", time.loss},
                      {"embedding", time.embedding},
                      {"optimizer", time.optimizer},
                      {"gaps", time.gaps},
                      {"recompute", time.recompute}}},
                    {"next", ordered_json::array()},
                    {"losers", ordered_json::array()},
                    {"changes", ordered_json::array()}};
  for (const Candidate& candidate : report.next) root["next"].push_back(candidate_json(report, candidate));
  for (const Loser& loser : report.losers) {
    ordered_json row = candidate_json(report, loser.candidate);
    row["fits"] = loser.fits;
    row["why"] = why(report, loser.candidate, loser.fits);
    root["losers"].push_back(std::move(row));
  }
  for (const Change& change : report.temptations) {
    ordered_json row = candidate_json(report, change.candidate);
    row["set"] = change.setting;
    root["changes"].push_back(std::move(row));
  }
  return root;
}

}  // namespace narrowgauge::plan
