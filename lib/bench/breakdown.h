#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace narrowgauge::bench {

// What a kernel of a training step works for.
enum class Category { gemm, attention, elementwise, loss, embedding, optimizer, other };
inline constexpr size_t kCategories = 7;
const char* category_name(Category category);  // "norm, RoPE, SwiGLU" for elementwise

// By the demangled name of a kernel, copy or fill. What is not recognised is `other`.
Category classify(std::string_view kernel);

// One piece of work on the device, nanoseconds of one clock.
struct KernelEvent {
  std::string name;
  int64_t begin = 0;
  int64_t end = 0;
};

struct KernelTotal {
  std::string name;
  Category category;
  int64_t count = 0;
  double milliseconds = 0;
};

// Where the time between the first and the last piece of work went. Categories add up to `busy` unless
// streams overlap.
struct Breakdown {
  std::array<double, kCategories> milliseconds{};
  double span = 0;                   // ms from the first begin to the last end
  double busy = 0;                   // ms in which anything ran
  std::vector<KernelTotal> kernels;  // by name, longest total first
  [[nodiscard]] double gaps() const { return span - busy; }
};
Breakdown break_down(std::vector<KernelEvent> events);

}  // namespace narrowgauge::bench
