#pragma once
#include <c10/core/Device.h>

#include <memory>

namespace narrowgauge::train {

// A point in the current stream of a device that the host can wait for. On the CPU everything has already
// happened.
class Fence {
 public:
  explicit Fence(c10::Device device);
  ~Fence();
  Fence(Fence&&) noexcept;
  Fence& operator=(Fence&&) noexcept;

  void record();      // after everything queued so far
  void wait() const;  // returns at once when nothing was recorded

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace narrowgauge::train
