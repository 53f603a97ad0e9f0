#pragma once
#include <ATen/record_function.h>

namespace narrowgauge::bench {

// While it lives, every launch of the process keeps the host busy for so many microseconds
// (cuda/launch_delay.h): kernels of cuda/, products, attention and graphs, and the copies and fills that go
// through LibTorch, on any thread. Each call counts once, whatever the library behind it launches, and none
// that a graph replays. One at a time, begun and ended while no other thread calls LibTorch. LaunchError as
// set_launch_delay.
class SlowHost {
 public:
  explicit SlowHost(double microseconds);  // 0: changes nothing and costs nothing
  ~SlowHost();
  SlowHost(const SlowHost&) = delete;
  SlowHost& operator=(const SlowHost&) = delete;

 private:
  at::CallbackHandle observer_ = at::INVALID_CALLBACK_HANDLE;
};

}  // namespace narrowgauge::bench
