#pragma once
// A plan for people and programs.
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lib/plan/advice.h"
#include "lib/plan/plan.h"

namespace narrowgauge::plan {

// All that is said about one request.
struct Report {
  Plan plan;
  std::string card;         // its name in the table
  double card_flops = 0;    // what MFU is measured against; 0: unknown
  std::string budget_rule;  // where the budget comes from: "memory.budget", ...
  bool outside_measured = false;
  std::vector<Candidate> next;  // the fastest after the plan, any micro-batch
  std::vector<Loser> losers;
  std::vector<Change> temptations;

  [[nodiscard]] double mfu() const;  // 0 when unknown
};

// Plans the request and what else is said about it. UserError as make_plan.
Report make_report(const Request& request, const Rates& rates, const Card& card);

// A table of a few dozen lines.
std::string report_text(const Report& report);

// Everything in report_text as one object: bytes, seconds, names as in the config.
nlohmann::ordered_json report_json(const Report& report);

// Device memory over the timeline (MemoryModel::timeline of the plan's choice), stacked by kind, with the
// budget as a line: a self-contained SVG. In `html` it stands in a page of its own.
std::string picture(const Report& report, const std::vector<Point>& timeline, bool html);

}  // namespace narrowgauge::plan
