#pragma once
// Copies from global to shared memory that a thread starts and later waits for (PTX cp.async). What a thread
// copied is its own to read after wait_copies; other threads need a barrier after that.
#include <cstdint>

namespace narrowgauge::cuda {

// Both on 16-byte boundaries.
__device__ __forceinline__ void copy16(void* shared, const void* global) {
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}

// Ends a group: the copies since the last call, perhaps none.
__device__ __forceinline__ void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most kPending of this thread's groups are under way.
template <int kPending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace narrowgauge::cuda
