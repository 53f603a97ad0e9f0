#include "lib/train/fence.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace narrowgauge::train {

struct Fence::State {
  explicit State(c10::Device where) : device(where), guard(where.type()), event(where.type()) {}
  c10::Device device;
  c10::impl::VirtualGuardImpl guard;
  c10::Event event;
  bool recorded = false;
};

Fence::Fence(c10::Device device) {
  if (!device.is_cpu()) state_ = std::make_unique<State>(device);
}
Fence::~Fence() = default;
Fence::Fence(Fence&&) noexcept = default;
Fence& Fence::operator=(Fence&&) noexcept = default;

void Fence::record() {
  if (!state_) return;
  state_->event.record(state_->guard.getStream(state_->device));
  state_->recorded = true;
}

void Fence::wait() const {
  if (state_ && state_->recorded) state_->event.synchronize();
}

}  // namespace narrowgauge::train
