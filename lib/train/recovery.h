#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "lib/plan/plan.h"
#include "lib/train/session.h"

namespace narrowgauge::train {

// What becomes of a run when device memory is no longer enough, because another program took some or because
// more is needed than was planned.
class Recovery {
 public:
  // `adopt` makes a run go on by another plan, at a step boundary; it may run out of memory itself. The
  // session must outlive this.
  Recovery(Session& session, std::function<void(const plan::Plan&)> adopt)
      : session_(session), adopt_(std::move(adopt)) {}

  // Does `work`. If memory is not enough, gives the allocator's caches back and does it once more; then
  // adopts the next smaller plan, and the next, until it succeeds. `work` fails before it has changed
  // anything that it would change again. UserError with the remedy when no plan is left; `what` ("step 7")
  // begins its text.
  void attempt(const std::string& what, const std::function<void()>& work);

  // Adopts a plan that needs at least `bytes` less than the present one. UserError as above; `problem` is a
  // sentence without its full stop.
  void shrink(const std::string& problem, int64_t bytes);

 private:
  [[nodiscard]] plan::Plan smaller(const std::string& problem, int64_t bytes);

  Session& session_;
  std::function<void(const plan::Plan&)> adopt_;
};

}  // namespace narrowgauge::train
