// Builds without CUDA: the launchers of cross_entropy, embedding and sum, which no CPU path reaches.
#include <stdexcept>

#include "cuda/cross_entropy.h"
#include "cuda/embedding.h"
#include "cuda/sum.h"

namespace narrowgauge::cuda {
namespace {

[[noreturn]] void absent() { throw std::logic_error("this build has no CUDA kernels"); }

}  // namespace

template <class T>
void cross_entropy(const CrossEntropy<T>&, const DeviceLimits&, Stream) {
  absent();
}
template <class T>
void embedding_forward(const EmbeddingForward<T>&, const DeviceLimits&, Stream) {
  absent();
}
template <class T>
void embedding_backward(const EmbeddingBackward<T>&, const DeviceLimits&, Stream) {
  absent();
}
void sum_into(std::span<const SumInto>, Stream) { absent(); }

template void cross_entropy<float>(const CrossEntropy<float>&, const DeviceLimits&, Stream);
template void cross_entropy<bf16>(const CrossEntropy<bf16>&, const DeviceLimits&, Stream);
template void embedding_forward<float>(const EmbeddingForward<float>&, const DeviceLimits&, Stream);
template void embedding_forward<bf16>(const EmbeddingForward<bf16>&, const DeviceLimits&, Stream);
template void embedding_backward<float>(const EmbeddingBackward<float>&, const DeviceLimits&, Stream);
template void embedding_backward<bf16>(const EmbeddingBackward<bf16>&, const DeviceLimits&, Stream);

}  // namespace narrowgauge::cuda
