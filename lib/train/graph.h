#pragma once
#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace narrowgauge::train {

// What train.cuda_graphs ("auto", "on" or "off") means on a device. UserError: "on" without a GPU.
bool use_cuda_graphs(const std::string& request, c10::Device device);

// Device work that is queued again and again with the same kernels, shapes and addresses: it runs once as it
// is, is captured in a CUDA graph the second time and replayed, as one launch, from then on. What changes
// between two replays must be read from device memory. All graphs share one memory pool, which stays reserved
// and counts in the allocator's cap: a body leaves no new tensor behind that is read after it. One thread
// calls.
class Graphs {
 public:
  // Off (the only choice without a GPU): every body runs as it is.
  Graphs(c10::Device device, bool on);
  ~Graphs();  // waits for the device
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  // Runs `body` with a stream current that can be captured; `run` is called in here. Its work comes after
  // what the caller's stream holds, and before what that stream is given later.
  void on_stream(const std::function<void()>& body);

  // Names one sequence of kernels.
  using Key = std::pair<int64_t, int64_t>;
  // The first time that a key's body runs, everything initialises itself that does so lazily. Capturing gives
  // the allocator's cached memory back and waits for the device; replaying does neither. An exception of the
  // body is passed on, and the key is as before.
  void run(const Key& key, const std::function<void()>& body);
  // Drops all graphs, for when addresses have changed; waits for the device if there are any.
  void forget();

 private:
  struct State;
  std::unique_ptr<State> state_;  // null: off
};

}  // namespace narrowgauge::train
