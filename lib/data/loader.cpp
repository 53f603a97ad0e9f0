#include "lib/data/loader.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <new>
#include <stdexcept>
#include <thread>

namespace narrowgauge::data {
namespace {

// A batch and the memory it points to.
struct Slot {
  GlobalBatch batch;
  std::vector<HostBuffer> memory;

  Slot() = default;
  Slot(Slot&&) = default;
  Slot& operator=(Slot&&) = delete;
  ~Slot() {
    for (const auto& buffer : memory) {
      if (buffer.release) buffer.release();
    }
  }
  int32_t* allocate(const HostAllocator& allocator, int64_t values) {
    memory.reserve(memory.size() + 1);
    memory.push_back(allocator(static_cast<size_t>(values) * sizeof(int32_t)));
    return static_cast<int32_t*>(memory.back().data);
  }
};

}  // namespace

HostBuffer plain_host_buffer(size_t bytes) {
  void* data = std::malloc(std::max<size_t>(bytes, 1));
  if (data == nullptr) throw std::bad_alloc();
  return {data, [data] { std::free(data); }};
}

struct Loader::State {
  State(std::shared_ptr<const Dataset> data, Sampler sample_order, LoaderOptions loader_options)
      : dataset(std::move(data)), sampler(sample_order), options(loader_options) {}

  void run(const std::stop_token& stop);
  void fill(GlobalBatch& batch, int64_t step);
  static void find_documents(GlobalBatch& batch, int64_t sequence, int32_t end_of_document);

  std::shared_ptr<const Dataset> dataset;
  Sampler sampler;
  LoaderOptions options;
  std::vector<Slot> slots;
  std::vector<int32_t> window;
  double waited = 0;

  std::mutex mutex;
  std::condition_variable_any changed;
  int64_t filled = 0;    // batches read so far; batch i lies in slot i % slots.size()
  int64_t released = 0;  // batches that the consumer is done with
  std::exception_ptr error;
  bool holding = false;  // the consumer has batch `released`

  std::jthread thread;  // last: it stops before the rest goes
};

Loader::Loader(std::shared_ptr<const Dataset> dataset, Sampler sampler, LoaderOptions options,
               const HostAllocator& allocate)
    : state_(std::make_unique<State>(std::move(dataset), sampler, options)) {
  if (options.sequences < 1 || options.context < 1 || options.prefetch < 0 || options.first_step < 0) {
    throw std::invalid_argument(
        "loader: sequences and context must be positive, prefetch and first_step not negative");
  }
  const int64_t values = options.sequences * options.context;
  for (int64_t i = 0; i <= options.prefetch; ++i) {
    Slot slot;
    slot.batch.sequences = options.sequences;
    slot.batch.context = options.context;
    slot.batch.counted_targets = values;
    slot.batch.tokens = slot.allocate(allocate, values);
    slot.batch.targets = slot.allocate(allocate, values);
    if (options.document_mask) {
      slot.batch.positions = slot.allocate(allocate, values);
      slot.batch.document_starts.resize(static_cast<size_t>(options.sequences));
    }
    state_->slots.push_back(std::move(slot));
  }
  state_->window.resize(static_cast<size_t>(options.context) + 1);
  state_->thread = std::jthread([state = state_.get()](const std::stop_token& stop) { state->run(stop); });
}

Loader::~Loader() = default;

const GlobalBatch& Loader::next() {
  State& state = *state_;
  const auto start = std::chrono::steady_clock::now();
  std::unique_lock lock(state.mutex);
  if (state.holding) {
    ++state.released;
    state.holding = false;
    state.changed.notify_all();
  }
  state.changed.wait(lock, [&] { return state.filled > state.released || state.error; });
  state.waited += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (state.filled <= state.released) std::rethrow_exception(state.error);
  state.holding = true;
  return state.slots[static_cast<size_t>(state.released) % state.slots.size()].batch;
}

double Loader::wait_seconds() const { return state_->waited; }

void Loader::State::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex);
  const auto count = static_cast<int64_t>(slots.size());
  while (changed.wait(lock, stop, [&] { return filled < released + count; })) {
    auto& batch = slots[static_cast<size_t>(filled % count)].batch;
    const int64_t step = options.first_step + filled;
    lock.unlock();
    std::exception_ptr failure;
    try {
      fill(batch, step);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    error = failure;
    if (!failure) ++filled;
    changed.notify_all();
    if (failure || stop.stop_requested()) return;
  }
}

void Loader::State::fill(GlobalBatch& batch, int64_t step) {
  batch.step = step;
  for (int64_t j = 0; j < options.sequences; ++j) {
    dataset->read(sampler.offset(step * options.sequences + j), options.context + 1, window.data());
    std::copy(window.begin(), window.end() - 1, batch.tokens + j * options.context);
    std::copy(window.begin() + 1, window.end(), batch.targets + j * options.context);
    if (options.document_mask) find_documents(batch, j, options.end_of_document);
  }
}

void Loader::State::find_documents(GlobalBatch& batch, int64_t sequence, int32_t end_of_document) {
  const int32_t* tokens = batch.tokens + sequence * batch.context;
  int32_t* positions = batch.positions + sequence * batch.context;
  auto& starts = batch.document_starts[static_cast<size_t>(sequence)];
  starts.assign(1, 0);
  for (int64_t i = 0; i < batch.context; ++i) {
    if (i > 0 && tokens[i - 1] == end_of_document) starts.push_back(static_cast<int32_t>(i));
    positions[i] = static_cast<int32_t>(i) - starts.back();
  }
}

}  // namespace narrowgauge::data
