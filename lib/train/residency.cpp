#include "lib/train/residency.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace narrowgauge::train {
namespace {

constexpr int kAhead = 8;

at::Tensor as_bytes(const at::Tensor& tensor) { return tensor.view(-1).view(at::kByte); }

}  // namespace

double CopySpeeds::median() const {
  if (bytes_per_second.empty()) return 0;
  std::vector<double> sorted = bytes_per_second;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

CopySpeeds read_speeds(const std::vector<at::Tensor>& buffers, const at::Tensor& target) {
  CopySpeeds speeds{.bytes_per_second = {}, .piece_bytes = kProbePiece};
  const at::Tensor into = as_bytes(target).narrow(0, 0, kProbePiece);
  const at::Device device = target.device();
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  const auto mark = [&] {
    c10::Event event(device.type(), c10::EventFlag::BACKEND_DEFAULT);
    event.record(stream);
    return event;
  };
  for (int i = 0; i < kAhead; ++i)
    into.zero_();  // so that the host is ahead of the device from the first mark on
  std::vector<c10::Event> marks;
  marks.push_back(mark());
  for (const at::Tensor& buffer : buffers) {
    const at::Tensor bytes = as_bytes(buffer);
    for (int64_t begin = 0; begin + kProbePiece <= bytes.numel();
         begin += kProbePiece) {  // a shorter rest proves nothing
      into.copy_(bytes.narrow(0, begin, kProbePiece));
      marks.push_back(mark());
    }
  }
  marks.back().synchronize();
  for (size_t i = 1; i < marks.size(); ++i) {
    const double seconds = 1e-3 * marks[i - 1].elapsedTime(marks[i]);
    speeds.bytes_per_second.push_back(static_cast<double>(kProbePiece) / std::max(seconds, 1e-9));
  }
  return speeds;
}

CopySpeeds read_resident(const model::Transformer& model, const optim::Optimizer& optimizer) {
  const at::Tensor slab = model.slab_memory();
  if (!slab.defined() || slab.numel() < kProbePiece) return {};
  const model::ParameterArena& arena = model.arena();
  std::vector<at::Tensor> buffers{slab.narrow(0, kProbePiece, slab.numel() - kProbePiece), arena.weights(),
                                  arena.grad(), arena.grad32()};
  for (const auto& [name, tensor] : optimizer.state_tensors()) buffers.push_back(tensor);
  std::erase_if(buffers, [](const at::Tensor& buffer) { return !buffer.defined() || buffer.numel() == 0; });
  return read_speeds(buffers, slab);
}

void Residency::calibrate() { usual_ = probe_().median(); }

int64_t Residency::spilled_bytes() const {
  if (usual_ == 0) return 0;
  const CopySpeeds now = probe_();
  const auto slow = std::count_if(now.bytes_per_second.begin(), now.bytes_per_second.end(),
                                  [&](double speed) { return speed < kSpilled * usual_; });
  return slow * now.piece_bytes;
}

}  // namespace narrowgauge::train
