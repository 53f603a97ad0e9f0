#include "lib/bench/slow_host.h"

#include <memory>
#include <string_view>

#include "cuda/launch_delay.h"

namespace narrowgauge::bench {
namespace {

// The operators that a step uses of LibTorch and that launch themselves; zero_ and others end in them.
std::unique_ptr<at::ObserverContext> before_operator(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  if (name == "aten::copy_" || name == "aten::fill_") cuda::launch_delay();
  return nullptr;
}

}  // namespace

SlowHost::SlowHost(double microseconds) {
  cuda::set_launch_delay(microseconds);
  if (microseconds == 0) return;
  observer_ =
      at::addGlobalCallback(at::RecordFunctionCallback(before_operator).scopes({at::RecordScope::FUNCTION}));
}

SlowHost::~SlowHost() {
  if (observer_ != at::INVALID_CALLBACK_HANDLE) at::removeCallback(observer_);
  cuda::set_launch_delay(0);
}

}  // namespace narrowgauge::bench
