#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "lib/base/text.h"
#include "lib/base/units.h"
#include "lib/plan/report.h"

namespace narrowgauge::plan {
namespace {

constexpr double kWidth = 1240;
constexpr double kHeight = 620;
constexpr double kLeft = 70;
constexpr double kTop = 70;
constexpr double kPlotWidth = 890;
constexpr double kMomentWidth = 66;  // of an evaluation, a sample, ...
constexpr const char* kSectionLine = "stroke=\"#222\" stroke-opacity=\"0.45\" stroke-dasharray=\"2 3\"";
constexpr double kPlotHeight = 450;
constexpr double kGibibyte = 1073741824.0;

// From the bottom up: what is there all the time, then what comes and goes.
struct Layer {
  Kind kind;
  const char* colour;
};
constexpr std::array<Layer, kKinds> kLayers{{{Kind::outside, "#9aa0a6"},
                                             {Kind::rounding, "#c4c8cc"},
                                             {Kind::gemm_workspace, "#7f8c8d"},
                                             {Kind::batch, "#6d5f4b"},
                                             {Kind::weights, "#1f5a94"},
                                             {Kind::gradients, "#3f8fd2"},
                                             {Kind::optimizer, "#93c4ea"},
                                             {Kind::saved, "#2e8b57"},
                                             {Kind::temporary, "#e0a100"},
                                             {Kind::loss, "#d1495b"},
                                             {Kind::scratch, "#8e5bb5"},
                                             {Kind::cache, "#c77dca"},
                                             {Kind::slab_rest, "#eef1ea"}}};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const char* entity = c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : nullptr;
    out += entity != nullptr ? std::string(entity) : std::string(1, c);
  }
  return out;
}

std::string words(double x, double y, const std::string& text, const char* more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, more, escaped(text));
}

std::string line(double x1, double y1, double x2, double y2, const char* more) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1, x2, y2,
                     more);
}

// Distance of the axis' marks: 1, 2 or 5 times a power of ten, at most ten of them.
double mark_distance(double most) {
  double step = std::pow(10, std::floor(std::log10(most / 10)));
  for (const double times : {1.0, 2.0, 5.0, 10.0}) {
    if (most / (step * times) <= 10) return step * times;
  }
  return step * 10;
}

class Chart {
 public:
  Chart(const Report& report, const std::vector<Point>& points)
      : report_(report), points_(points), operations_(points.size() + 1 - report.plan.memory.moments.size()) {
    int64_t most = report.plan.budget;
    for (const Point& point : points) most = std::max(most, point.bytes.sum());
    top_ = 1.08 * static_cast<double>(most) / kGibibyte;
  }

  [[nodiscard]] std::string svg() const {
    std::string out = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
        "font-family=\"sans-serif\" font-size=\"13\" fill=\"#222\">\n"
        "<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n",
        kWidth, kHeight);
    return out + title() + axis() + areas() + budget() + phases() + legend() + "</svg>\n";
  }

 private:
  // Where a point begins: operations share what the moments after them leave.
  [[nodiscard]] double x(size_t point) const {
    const double moments = kMomentWidth * static_cast<double>(points_.size() - operations_);
    const double part = static_cast<double>(std::min(point, operations_)) / static_cast<double>(operations_);
    const double later = static_cast<double>(point - std::min(point, operations_));
    return kLeft + (kPlotWidth - moments) * part + kMomentWidth * later;
  }
  [[nodiscard]] double y(int64_t bytes) const {
    return kTop + kPlotHeight * (1 - static_cast<double>(bytes) / kGibibyte / top_);
  }

  [[nodiscard]] std::string title() const {
    const Plan& plan = report_.plan;
    return words(kLeft, 28,
                 fmt::format(
                     "Device memory over a micro-batch and the other parts of a run: {} parameters on {}",
                     format_count(static_cast<double>(plan.config.model.parameter_count())), report_.card),
                 "font-size=\"17\" font-weight=\"bold\"") +
           words(
               kLeft, 50,
               fmt::format("micro-batch {}, context {}, recompute {}; {} tokens/s{}", plan.choice.micro_batch,
                           plan.config.data.context, levels_text(plan.choice.levels),
                           format_count(plan.tokens_per_second), plan.estimated ? " (estimate)" : ""));
  }

  [[nodiscard]] std::string axis() const {
    std::string out;
    const double distance = mark_distance(top_);
    for (double mark = 0; mark <= top_; mark += distance) {
      const double at = kTop + kPlotHeight * (1 - mark / top_);
      out += line(kLeft, at, kLeft + kPlotWidth, at, "stroke=\"#ddd\"");
      out += words(kLeft - 8, at + 4, fmt::format("{:g}", mark), "text-anchor=\"end\"");
    }
    return out + fmt::format(
                     "<text transform=\"translate(24 {:.1f}) rotate(-90)\" text-anchor=\"middle\">GiB of "
                     "device memory</text>\n",
                     kTop + kPlotHeight / 2);
  }

  void corner(double at, const std::pair<int64_t, int64_t>& ends, std::string& upper,
              std::vector<std::string>& lower) const {
    upper += fmt::format("{:.1f},{:.1f} ", at, y(ends.second));
    lower.push_back(fmt::format("{:.1f},{:.1f} ", at, y(ends.first)));
  }
  // One step-shaped area for each kind, on top of those before it.
  [[nodiscard]] std::string areas() const {
    std::string out;
    std::vector<int64_t> below(points_.size(), 0);
    for (const Layer& layer : kLayers) {
      std::string upper;
      std::vector<std::string> lower;
      bool any = false;
      std::pair<int64_t, int64_t> before{-1, -1};
      for (size_t i = 0; i < points_.size(); ++i) {
        const int64_t bytes = points_[i].bytes[layer.kind];
        const std::pair<int64_t, int64_t> now{below[i], below[i] + bytes};
        below[i] += bytes;
        any = any || bytes > 0;
        if (i > 0 && now != before) corner(x(i), before, upper, lower);
        if (i == 0 || now != before) corner(x(i), now, upper, lower);
        if (i + 1 == points_.size()) corner(x(i + 1), now, upper, lower);
        before = now;
      }
      std::reverse(lower.begin(), lower.end());
      if (!any) continue;
      out += fmt::format("<polygon points=\"{}{}\" fill=\"{}\"><title>{}</title></polygon>\n", upper,
                         join(lower, ""), layer.colour, kind_name(layer.kind));
    }
    return out;
  }

  [[nodiscard]] std::string budget() const {
    const double at = y(report_.plan.budget);
    return line(kLeft, at, kLeft + kPlotWidth, at,
                "stroke=\"#b00020\" stroke-width=\"2\" stroke-dasharray=\"7 4\"") +
           words(kLeft + kPlotWidth - 6, at - 6, "budget " + format_bytes(report_.plan.budget),
                 "text-anchor=\"end\" fill=\"#b00020\" font-weight=\"bold\"");
  }

  // Where the parts of the pass begin, and every layer as a tick.
  [[nodiscard]] std::string phases() const {
    const double bottom = kTop + kPlotHeight;
    std::string out = line(kLeft, bottom, kLeft + kPlotWidth, bottom, "stroke=\"#222\"");
    for (size_t i = 0; i < operations_; ++i) {
      if (i == 0 || points_[i].label != points_[i - 1].label)
        out += line(x(i), bottom, x(i), bottom + 5, "stroke=\"#666\"");
    }
    const auto ends_with = [](const std::string& label, const char* word) { return label.ends_with(word); };
    const auto section = [&](const char* name, const auto& belongs) {
      const auto first = std::find_if(points_.begin(), points_.end(), belongs);
      if (first == points_.end()) return;
      const auto last = std::find_if(points_.rbegin(), points_.rend(), belongs);
      const double from = x(static_cast<size_t>(first - points_.begin()));
      const double to = x(static_cast<size_t>(points_.rend() - last));
      out += line(from, kTop, from, bottom + 24, kSectionLine);
      if (to - from > 40) {
        out += words((from + to) / 2, bottom + 21, name, "text-anchor=\"middle\"");
      } else {
        out += line((from + to) / 2, bottom + 6, (from + to) / 2, bottom + 28, "stroke=\"#666\"");
        out += words((from + to) / 2, bottom + 41, name, "text-anchor=\"middle\"");
      }
    };
    section("forward, layer by layer", [&](const Point& p) { return ends_with(p.label, " forward"); });
    section("loss", [](const Point& p) { return p.label == "loss"; });
    section("backward, last layer first",
            [&](const Point& p) { return p.label.starts_with("layer") && ends_with(p.label, " backward"); });
    for (size_t i = operations_; i < points_.size(); ++i) {
      out += line(x(i), kTop, x(i), bottom + 24, kSectionLine);
      out += words(x(i) + kMomentWidth / 2, bottom + 20, points_[i].label,
                   "text-anchor=\"middle\" font-size=\"11\"");
    }
    return out + words((kLeft + x(operations_)) / 2, bottom + 66,
                       "operations of a micro-batch, in order (ticks: layers)", "text-anchor=\"middle\"");
  }

  // The kinds from top to bottom as they are stacked, with their most bytes.
  [[nodiscard]] std::string legend() const {
    std::string out;
    double at = kTop + 10;
    for (size_t i = kLayers.size(); i-- > 0;) {
      int64_t most = 0;
      for (const Point& point : points_) most = std::max(most, point.bytes[kLayers[i].kind]);
      if (most == 0) continue;
      const double left = kLeft + kPlotWidth + 22;
      out += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"14\" height=\"14\" fill=\"{}\" stroke=\"#888\" "
          "stroke-width=\"0.5\"/>\n",
          left, at - 11, kLayers[i].colour);
      out += words(left + 21, at, kind_name(kLayers[i].kind));
      out += words(kWidth - 12, at, format_bytes(most), "text-anchor=\"end\" fill=\"#555\"");
      at += 24;
    }
    return out + words(kLeft + kPlotWidth + 22, at + 8, "right: the most of each",
                       "fill=\"#777\" font-size=\"12\"");
  }

  const Report& report_;
  const std::vector<Point>& points_;
  size_t operations_;  // points before the other moments
  double top_ = 0;     // GiB at the upper end of the axis
};

}  // namespace

std::string picture(const Report& report, const std::vector<Point>& timeline, bool html) {
  std::string svg = Chart(report, timeline).svg();
  if (!html) return svg;
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>narrowgauge "
         "plan</title></head>\n"
         "<body>\n" +
         svg + "</body>\n</html>\n";
}

}  // namespace narrowgauge::plan
