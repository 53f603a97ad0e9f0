#include "lib/plan/report.h"

#include <nlohmann/json.hpp>

#include "lib/base/error.h"
#include "tests/plan/cases.h"
#include "tests/support/catch.h"

namespace narrowgauge::plan {
namespace {

struct Case {
  Request request;
  Report report;
};

// 977M parameters with an exact master in 13 GiB of an RTX 5080.
const Case& planned() {
  static const Case one = [] {
    Config config;
    config.optim.master = "split";
    config.train.sample_every = 1000;
    const Card& card = named_card("5080");
    Request request{.config = config,
                    .surroundings = on_card("5080"),
                    .budget = gibibytes(13),
                    .loss_chunks = {},
                    .candidates = 1};
    Report report = make_report(request, Rates(card, false), card);
    report.budget_rule = "of the test";
    return Case{std::move(request), std::move(report)};
  }();
  return one;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST_CASE("the table") {
  const std::string text = report_text(planned().report);
  INFO(text);
  for (const char* part :
       {"977M parameters, context 4096, 65536 tokens a step on GeForce RTX 5080",
        "micro-batch  1 of 16 sequences", "(estimate), MFU ", "at the peak (sample)",
        "weights                   1.82 GiB", "13.00 GiB  of the test", "margin", "matrix products",
        "of it recomputing", "The next fastest that fit:", "Why not another way:", "% slower", " more ",
        "Faster, but for you to decide:", "--set optim.master=stochastic"}) {
    CHECK(has(text, part));
  }
  CHECK(has(text, levels_text(planned().report.plan.choice.levels)));
  CHECK(planned().report.mfu() > 0.3);
  CHECK(planned().report.mfu() < 1);
}

TEST_CASE("a plan says where its rates come from") {
  const auto [request, report] = planned();
  CHECK(has(report_text(report), " ms (estimate: rates from the table of cards):"));
  const Card& card = named_card("5080");
  const Rates measured(card, false,
                       {{.probe = {.work = Work::launch, .rows = 1000, .shape = {}}, .seconds = 2e-3}});
  const Report other = make_report(request, measured, card);
  CHECK(has(report_text(other), " ms (from rates measured on this card):"));
  CHECK_FALSE(has(report_text(other), "(estimate"));
  CHECK(report_json(other)["estimated"] == false);
}

TEST_CASE("the JSON") {
  const auto [request, report] = planned();
  const nlohmann::ordered_json root = report_json(report);
  CHECK(root["card"] == "GeForce RTX 5080");
  CHECK(root["estimated"] == true);
  CHECK(root["budget"] == request.budget);
  CHECK(root["plan"]["micro_batch"] == 1);
  CHECK(root["plan"]["recompute"].size() == 24);
  CHECK(root["plan"]["bytes"].get<int64_t>() + root["margin"].get<int64_t>() == request.budget);
  CHECK(root["next"].size() == 3);
  CHECK(root["losers"].size() == 5);
  CHECK(root["changes"].size() >= 1);
  int64_t most = 0;
  for (const auto& moment : root["memory"]) {
    int64_t sum = 0;
    for (const auto& [kind, bytes] : moment.items()) sum += kind == "sum" ? 0 : bytes.get<int64_t>();
    CHECK(moment["sum"] == sum);
    most = std::max(most, sum);
  }
  CHECK(root["memory"][root["peak"].get<std::string>()]["sum"] == most);
  CHECK(root["plan"]["bytes"] == most);
  double seconds = 0;
  for (const auto& [part, value] : root["seconds"].items())
    seconds += part == "recompute" ? 0 : value.get<double>();
  CHECK(seconds == Approx(root["plan"]["seconds"].get<double>()));
}

TEST_CASE("the picture stands alone and shows every kind that there is") {
  const auto [request, report] = planned();
  const std::vector<Point> points =
      MemoryModel(request.config, request.surroundings).timeline(report.plan.choice);
  const std::string svg = picture(report, points, false);
  CHECK(svg.starts_with("<svg xmlns="));
  CHECK(svg.ends_with("</svg>\n"));
  CHECK(has(svg, "budget 13.0 GiB"));
  CHECK(has(svg, "GiB of device memory"));
  for (int i = 0; i < kKinds; ++i) {
    bool any = false;
    for (const Point& point : points) any = any || point.bytes[static_cast<Kind>(i)] > 0;
    CHECK(count(svg, std::string("<title>") + kind_name(static_cast<Kind>(i)) + "<") == (any ? 1 : 0));
  }
  for (const char* label : {"forward, layer by layer", "loss", "backward, last layer first", "update",
                            "evaluation", "sample", "checkpoint"}) {
    CHECK(has(svg, std::string(">") + label + "</text>"));
  }
  for (const char* outside : {"href", "script", "nan", "inf"}) CHECK_FALSE(has(svg, outside));
  CHECK(count(svg, "<polygon") == count(svg, "</polygon>"));
  CHECK(svg.size() < 150000);
  const std::string html = picture(report, points, true);
  CHECK(html.starts_with("<!DOCTYPE html>"));
  CHECK(has(html, svg));
}

TEST_CASE("nothing to report where nothing fits") {
  const auto [request, report] = planned();
  Request small = request;
  small.budget = gibibytes(6);
  REQUIRE_THROWS_AS(make_report(small, Rates(named_card("5080"), false), named_card("5080")), UserError);
}

}  // namespace
}  // namespace narrowgauge::plan
