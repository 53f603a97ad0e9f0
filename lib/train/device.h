#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <string>

#include "lib/config/train_config.h"

namespace narrowgauge::train {

// Where a run computes.
struct ComputeDevice {
  at::Device device = at::kCPU;
  std::string name = "CPU";
  std::string driver;       // "CUDA driver 13.0"; empty on the CPU
  int64_t total_bytes = 0;  // of the card; 0 on the CPU
};

// "auto" (a GPU when there is one), "cuda" or "cpu". Makes the device current and creates its context.
// UserError when cuda is asked for and there is no GPU, or the program was built without CUDA.
ComputeDevice open_device(const std::string& request);

// Runs `body`; when the device's memory is not enough, a UserError says what to lower.
void name_memory_errors(const std::function<void()>& body);

// Process-wide rules of arithmetic: no reduced-precision sums in bf16 products, no TF32, and with
// `deterministic` only kernels that give the same bits twice. Call before the first product.
void set_numerics(bool deterministic);

// Peaks since the process started. On the CPU `device` is the process's resident memory and the others are 0.
struct MemoryPeaks {
  int64_t allocated = 0;  // of tensors
  int64_t reserved = 0;   // held by the allocator
  int64_t device = 0;     // all device memory of the process: reserved, context, library workspaces
};

// Keeps the process inside its budget and reads its peaks. Does nothing but measure on the CPU.
class DeviceMemory {
 public:
  // `budget` bytes of device memory for the whole process; 0: what is free on the card now, less `reserve`
  // bytes. The allocator's cap is the budget less what lies outside the allocator, here the context.
  DeviceMemory(const ComputeDevice& device, int64_t budget, int64_t reserve);

  // Lowers the budget, and the cap with it; a larger one changes nothing.
  void lower(int64_t budget);

  // Measures what lies outside the allocator again (library workspaces exist after the first steps) and
  // lowers the cap.
  void tighten();
  // Reads the device's use; a few microseconds. The peaks come from these samples and from the allocator.
  MemoryPeaks sample();
  [[nodiscard]] int64_t cap() const { return cap_; }  // bytes; 0: none
  // Of the whole process, bytes: on the CPU what the constructor was told.
  [[nodiscard]] int64_t budget() const { return budget_; }
  // What the process could have now: the budget, or less where other programs have taken memory since. The
  // rest of the card's free memory is left to the driver. On the CPU the budget.
  [[nodiscard]] int64_t available() const;

 private:
  void set_cap(int64_t outside);

  ComputeDevice device_;
  int64_t budget_ = 0;
  int64_t others_ = 0;  // used on the card by other processes at the start
  int64_t cap_ = 0;
  int64_t device_peak_ = 0;
};

// What the allocator holds but no tensor uses goes back to the card. Does nothing on the CPU.
void release_cached_memory();

// Whether an exception says that device memory was not enough: of the allocator, the driver or a library.
bool is_out_of_memory(const std::exception& error);

// Page-locked when the device is a GPU, so that copies run beside the host.
at::Tensor host_tensor(at::IntArrayRef shape, at::ScalarType dtype, at::Device device);

}  // namespace narrowgauge::train
