#include "lib/train/graph.h"

#include <algorithm>
#include <map>
#include <stdexcept>

#include "lib/base/error.h"

#if NARROWGAUGE_CUDA
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>

#include "cuda/launch_delay.h"
#endif

namespace narrowgauge::train {

bool use_cuda_graphs(const std::string& request, c10::Device device) {
  if (request == "on" && !device.is_cuda()) {
    throw UserError(
        "train.cuda_graphs is on, but the run has no GPU (train.device); set train.cuda_graphs to auto or "
        "off");
  }
  return request != "off" && device.is_cuda();
}

#if NARROWGAUGE_CUDA
namespace {

using at::cuda::CUDAGraph;

// Work queued on `to` from now on comes after what `from` holds.
void order(c10::cuda::CUDAEvent& event, const c10::cuda::CUDAStream& from, const c10::cuda::CUDAStream& to) {
  event.record(from);
  event.block(to);
}

// Ends a capture whose body failed, so that stream and allocator work as before. What goes wrong on the way
// follows from that failure, which is the one to report.
void abandon(CUDAGraph& graph, c10::DeviceIndex device, c10::MempoolId_t pool) {
  try {
    graph.capture_end();
  } catch (const std::exception&) {
    try {
      c10::cuda::CUDACachingAllocator::endAllocateToPool(device, pool);
    } catch (const std::exception&) {
      return;  // it had ended
    }
  }
}

}  // namespace

struct Graphs::State {
  explicit State(c10::Device where)
      : device(where), stream(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, where.index())) {}

  std::unique_ptr<CUDAGraph> capture(const std::function<void()>& body) {
    const bool first =
        std::none_of(graphs.begin(), graphs.end(), [](const auto& g) { return g.second != nullptr; });
    if (first) pool = at::cuda::graph_pool_handle();  // one whose graphs are all gone cannot be used again
    c10::cuda::CUDACachingAllocator::emptyCache();  // what the body used uncaptured is needed in the pool now
    auto graph = std::make_unique<CUDAGraph>();
    // Calls that must not be captured are errors on this thread only: others may take page-locked memory.
    graph->capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    try {
      body();
    } catch (...) {
      abandon(*graph, device.index(), pool);
      throw;
    }
    graph->capture_end();
    return graph;
  }

  c10::Device device;
  c10::cuda::CUDAStream stream;
  c10::MempoolId_t pool{0, 0};
  c10::cuda::CUDAEvent entered;
  c10::cuda::CUDAEvent left;
  std::map<Key, std::unique_ptr<CUDAGraph>> graphs;  // null: ran once
};

Graphs::Graphs(c10::Device device, bool on) {
  if (on) state_ = std::make_unique<State>(device);
}

Graphs::~Graphs() {
  if (!state_) return;
  try {
    state_->stream.synchronize();
  } catch (const std::exception&) {
    return;  // the device has failed, as whoever uses it next will hear
  }
}

void Graphs::on_stream(const std::function<void()>& body) {
  if (!state_) return body();
  const auto caller = c10::cuda::getCurrentCUDAStream(state_->device.index());
  order(state_->entered, caller, state_->stream);
  try {
    const c10::cuda::CUDAStreamGuard guard(state_->stream);
    body();
  } catch (...) {
    order(state_->left, state_->stream, caller);
    throw;
  }
  order(state_->left, state_->stream, caller);
}

void Graphs::run(const Key& key, const std::function<void()>& body) {
  if (!state_) return body();
  const auto found = state_->graphs.find(key);
  if (found == state_->graphs.end()) {
    body();
    state_->graphs.emplace(key, nullptr);
    return;
  }
  if (!found->second) found->second = state_->capture(body);
  cuda::launch_delay();
  found->second->replay();
}

void Graphs::forget() {
  if (!state_ || state_->graphs.empty()) return;
  state_->stream.synchronize();
  state_->graphs.clear();
}
#else
struct Graphs::State {};

Graphs::Graphs(c10::Device, bool on) {
  if (on) throw std::logic_error("this build has no CUDA");
}
Graphs::~Graphs() = default;
void Graphs::on_stream(const std::function<void()>& body) { body(); }
void Graphs::run(const Key&, const std::function<void()>& body) { body(); }
void Graphs::forget() {}
#endif

}  // namespace narrowgauge::train
