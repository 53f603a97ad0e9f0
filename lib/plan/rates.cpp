#include "lib/plan/rates.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace narrowgauge::plan {

const char* work_name(Work work) {
  constexpr std::array<const char*, kWorks> kNames{"product",
                                                   "product_input_grad",
                                                   "product_weight_grad",
                                                   "attention",
                                                   "attention_backward",
                                                   "attention_backward_deterministic",
                                                   "traffic",
                                                   "launch"};
  return kNames.at(static_cast<size_t>(work));
}

Rates::Rates(const Card& card, bool fp32, std::vector<Measurement> measured) : roofline_(card, fp32) {
  std::sort(measured.begin(), measured.end(), [](const Measurement& a, const Measurement& b) {
    const Probe& p = a.probe;
    const Probe& q = b.probe;
    if (p.work != q.work) return p.work < q.work;
    if (p.shape != q.shape) return p.shape < q.shape;
    return p.rows != q.rows ? p.rows < q.rows : a.seconds < b.seconds;
  });
  for (const Measurement& point : measured) {
    if (point.probe.rows <= 0 || !(point.seconds > 0) || !std::isfinite(point.seconds)) {
      throw std::invalid_argument("a measurement needs rows and a time");
    }
    if (families_.empty() || families_.back().work != point.probe.work ||
        families_.back().shape != point.probe.shape) {
      families_.push_back({.work = point.probe.work, .shape = point.probe.shape, .points = {}});
    }
    std::vector<Measurement>& points = families_.back().points;
    const double least = points.empty() ? 0 : points.back().seconds;
    if (!points.empty() && points.back().probe.rows == point.probe.rows) points.pop_back();
    points.push_back({point.probe, std::max(point.seconds, least)});
  }
}

// The shape whose sizes are the nearest, by the sum of squared logarithms of their ratios.
const Rates::Family* Rates::nearest(const Probe& probe) const {
  const Family* best = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const Family& family : families_) {
    if (family.work != probe.work) continue;
    double distance = 0;
    for (size_t i = 0; i < probe.shape.size(); ++i) {
      const double ratio = std::log(static_cast<double>(probe.shape[i] + 1)) -
                           std::log(static_cast<double>(family.shape[i] + 1));
      distance += ratio * ratio;
    }
    if (distance < least) {
      least = distance;
      best = &family;
    }
  }
  return best;
}

double Rates::within(const Family& family, int64_t rows) const {
  const auto above =
      std::lower_bound(family.points.begin(), family.points.end(), rows,
                       [](const Measurement& point, int64_t wanted) { return point.probe.rows < wanted; });
  const auto scaled = [&](const Measurement& point) {
    Probe wanted = point.probe;
    wanted.rows = rows;
    return point.seconds * roofline_.seconds(wanted) / roofline_.seconds(point.probe);
  };
  if (above == family.points.end()) return scaled(family.points.back());
  if (above->probe.rows == rows) return above->seconds;
  if (above == family.points.begin()) return scaled(*above);
  const Measurement& below = *(above - 1);
  const auto logarithm = [](auto value) { return std::log(static_cast<double>(value)); };
  const double part = (logarithm(rows) - logarithm(below.probe.rows)) /
                      (logarithm(above->probe.rows) - logarithm(below.probe.rows));
  return std::exp(logarithm(below.seconds) + part * (logarithm(above->seconds) - logarithm(below.seconds)));
}

double Rates::seconds(const Probe& probe) const {
  if (probe.rows <= 0) return 0;
  const Family* family = nearest(probe);
  if (family == nullptr) return roofline_.seconds(probe);
  const double there = within(*family, probe.rows);
  if (family->shape == probe.shape) return there;
  Probe same_rows = probe;
  same_rows.shape = family->shape;
  return there * roofline_.seconds(probe) / roofline_.seconds(same_rows);
}

}  // namespace narrowgauge::plan
