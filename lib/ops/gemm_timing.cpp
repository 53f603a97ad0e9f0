#if NARROWGAUGE_CUDA
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "lib/ops/choices.h"
#include "lib/ops/gemm_problem.h"

namespace narrowgauge::ops {
namespace {

constexpr int kAlgorithms = 64;
constexpr int kCheapCalls = 3;
constexpr double kDropped = 1.3;  // times the best of the cheap pass
constexpr size_t kFinalists = 12;
constexpr int kRepetitions = 7;
constexpr double kBurstUs = 4000;
constexpr double kFewestCalls = 6;  // of a finalist at a time
constexpr double kMostCalls = 24;
constexpr double kNever = std::numeric_limits<double>::infinity();

// Operands of the product in turn, in one piece of random memory.
class RotatingOperands {
 public:
  RotatingOperands(const GemmShape& s, at::Device device, int64_t byte_limit) {
    const auto span = [](int64_t rows, int64_t stride, at::ScalarType type) {
      constexpr int64_t kAlignment = 256;
      const int64_t bytes = rows * stride * static_cast<int64_t>(c10::elementSize(type));
      return (bytes + kAlignment - 1) / kAlignment * kAlignment;
    };
    a_bytes_ = span(s.transpose_a ? s.k : s.m, s.lda, s.in);
    b_bytes_ = span(s.transpose_b ? s.n : s.k, s.ldb, s.in);
    set_bytes_ = a_bytes_ + b_bytes_ + span(s.m, s.ldc, s.out);
    int cache = 0;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, device.index()));
    size_t free = 0;
    size_t total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    const int64_t room = std::min(byte_limit, static_cast<int64_t>(free / 2)) / set_bytes_;
    sets_ = std::min(room, int64_t{4} * cache / set_bytes_ + 1);
    if (sets_ == 0) return;
    memory_ = at::empty({sets_ * set_bytes_ / 2}, at::TensorOptions().dtype(at::kBFloat16).device(device));
    memory_.normal_();
  }

  [[nodiscard]] bool fits() const { return sets_ > 0; }

  // The next product is that of the first set.
  void rewind() { turn_ = 0; }

  cublasStatus_t run(const GemmProblem& problem, const GemmAlgorithm& algorithm, cudaStream_t stream) {
    char* const a = static_cast<char*>(memory_.mutable_data_ptr()) + turn_ * set_bytes_;
    turn_ = (turn_ + 1) % sets_;
    char* const b = a + a_bytes_;
    return problem.run(algorithm, b + b_bytes_, a, b, stream);
  }

 private:
  int64_t a_bytes_ = 0;
  int64_t b_bytes_ = 0;
  int64_t set_bytes_ = 0;  // A, B, C
  int64_t sets_ = 0;
  int64_t turn_ = 0;
  at::Tensor memory_;
};

class Stopwatch {
 public:
  Stopwatch() {
    C10_CUDA_CHECK(cudaEventCreate(&begin_));
    C10_CUDA_CHECK(cudaEventCreate(&end_));
  }
  ~Stopwatch() {
    static_cast<void>(cudaEventDestroy(begin_));
    static_cast<void>(cudaEventDestroy(end_));
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  // Microseconds that the device takes for what `body` queues.
  template <class Body>
  double time(cudaStream_t stream, Body&& body) {
    C10_CUDA_CHECK(cudaEventRecord(begin_, stream));
    body();
    C10_CUDA_CHECK(cudaEventRecord(end_, stream));
    C10_CUDA_CHECK(cudaEventSynchronize(end_));
    float milliseconds = 0;
    C10_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return 1e3 * milliseconds;
  }

 private:
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

// Work of a stream as a captured graph, as a training step replays it: what a product clears before it runs,
// and the pauses between its kernels, are part of it.
class Recording {
 public:
  // `body` queues the work and says whether that succeeded.
  template <class Body>
  Recording(cudaStream_t stream, Body&& body) : stream_(stream) {
    C10_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    const bool queued = body();
    cudaGraph_t graph = nullptr;
    bool complete = cudaStreamEndCapture(stream, &graph) == cudaSuccess && queued;
    complete = complete && cudaGraphInstantiate(&work_, graph, 0) == cudaSuccess;
    if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
    if (!complete) static_cast<void>(cudaGetLastError());
  }
  ~Recording() {
    if (work_ != nullptr) static_cast<void>(cudaGraphExecDestroy(work_));
  }
  Recording(Recording&& other) noexcept
      : stream_(other.stream_), work_(std::exchange(other.work_, nullptr)) {}
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  Recording& operator=(Recording&&) = delete;

  // False: the work cannot be captured.
  [[nodiscard]] bool works() const { return work_ != nullptr; }
  void replay() const { C10_CUDA_CHECK(cudaGraphLaunch(work_, stream_)); }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t work_ = nullptr;
};

struct Candidate {
  GemmAlgorithm algorithm;
  bool first;  // of the library's list
  double cheap_us = kNever;
  std::vector<double> runs = {};

  [[nodiscard]] double median() const {
    std::vector<double> sorted = runs;
    std::sort(sorted.begin(), sorted.end());
    return sorted.empty() ? kNever : sorted[sorted.size() / 2];
  }
};

class GemmContest {
 public:
  GemmContest(const GemmProblem& problem, RotatingOperands& operands, cudaStream_t stream)
      : problem_(problem), operands_(operands), stream_(stream) {}

  // The finalists with their runs: the library's first algorithm, where it runs, and those near the best.
  std::vector<Candidate> hold() {
    std::vector<Candidate> all;
    for (const GemmAlgorithm& algorithm : problem_.algorithms(kAlgorithms, /*both=*/true)) {
      all.push_back({.algorithm = algorithm, .first = all.empty()});
    }
    double best = kNever;
    for (Candidate& one : all) {
      if (operands_.run(problem_, one.algorithm, stream_) != CUBLAS_STATUS_SUCCESS) continue;  // and warms up
      one.cheap_us = call_us(one, kCheapCalls);
      best = std::min(best, one.cheap_us);
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const Candidate& a, const Candidate& b) { return a.cheap_us < b.cheap_us; });
    std::vector<Candidate> finalists;
    for (const Candidate& one : all) {
      const bool near = finalists.size() < kFinalists && one.cheap_us <= kDropped * best;
      if (one.cheap_us < kNever && (one.first || near)) finalists.push_back(one);
    }
    const int calls = static_cast<int>(std::clamp(kBurstUs / best, kFewestCalls, kMostCalls));
    std::vector<Recording> recordings;
    for (const Candidate& one : finalists) recordings.push_back(record(one, calls));
    // In turn, so that a drifting clock is nobody's advantage.
    for (int i = 0; i < 1 + kRepetitions; ++i) {
      for (size_t f = 0; f < finalists.size(); ++f) {
        if (!recordings[f].works()) continue;
        const double us = watch_.time(stream_, [&] { recordings[f].replay(); });
        if (i > 0) finalists[f].runs.push_back(us / calls);  // the first replay sets the graph up
      }
    }
    return finalists;
  }

 private:
  Recording record(const Candidate& one, int calls) {
    operands_.rewind();
    return Recording(stream_, [&] {
      bool queued = true;
      for (int i = 0; i < calls; ++i) {
        queued = operands_.run(problem_, one.algorithm, stream_) == CUBLAS_STATUS_SUCCESS && queued;
      }
      return queued;
    });
  }

  double call_us(const Candidate& one, int calls) {
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    const double us = watch_.time(stream_, [&] {
      for (int i = 0; i < calls; ++i) {
        status = std::max(status, operands_.run(problem_, one.algorithm, stream_));
      }
    });
    return status == CUBLAS_STATUS_SUCCESS ? us / calls : kNever;
  }

  const GemmProblem& problem_;
  RotatingOperands& operands_;
  cudaStream_t stream_;
  Stopwatch watch_;
};

double microseconds(const nlohmann::json& choice, const char* name) {
  const auto value = choice.value(name, nlohmann::json());
  return value.is_number() ? value.get<double>() : 0;
}

}  // namespace

ProductTimings time_gemm(const GemmShape& shape, at::Device device, int64_t byte_limit) {
  if (shape.m == 0 || shape.n == 0 || shape.k == 0) return {.left = 1};
  const c10::cuda::CUDAGuard guard(device);
  const std::string key = gemm_key(shape);
  const GemmProblem problem(shape, gemm_device(device));
  ProductTimings result;
  const auto known = choices().find(key);
  const auto choice = known ? known : choices().remembered(key);
  if (choice) {
    const auto algorithm = algorithm_from_json(*choice);
    if (algorithm && problem.takes(*algorithm)) {
      if (!known) choices().store(key, *choice);
      (known ? result.in_force : result.recalled) = 1;
      result.first_us = microseconds(*choice, "first_us");
      result.chosen_us = microseconds(*choice, "us");
      return result;
    }
    result.refused = 1;
  }
  {
    C10_CUDA_CHECK(cudaDeviceSynchronize());  // products of other streams use the same workspace
    const c10::cuda::CUDAStreamGuard one_that_can_be_captured(
        c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index()));
    RotatingOperands operands(shape, device, byte_limit);
    if (!operands.fits()) return {.refused = result.refused, .left = 1};
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device.index()).stream();
    const std::vector<Candidate> finalists = GemmContest(problem, operands, stream).hold();
    TORCH_CHECK(!finalists.empty(), "cuBLASLt: no algorithm runs ", key);
    const auto faster = [](const Candidate& a, const Candidate& b) { return a.median() < b.median(); };
    const Candidate& best = *std::min_element(finalists.begin(), finalists.end(), faster);
    const auto first =
        std::find_if(finalists.begin(), finalists.end(), [](const auto& c) { return c.first; });
    result.timed = 1;
    result.chosen_us = best.median();
    result.first_us = (first == finalists.end() ? best : *first).median();
    choices().store(key, algorithm_to_json(best.algorithm, result.chosen_us, result.first_us));
  }
  c10::cuda::CUDACachingAllocator::emptyCache();
  return result;
}

}  // namespace narrowgauge::ops
#endif
