#pragma once
#include <vector>

#include "lib/bench/json.h"
#include "lib/bench/table.h"

namespace narrowgauge::bench {

// What a result of bench_kernels, bench_gemm, bench_attention or bench_step says, as tables. A step's longest
// kernels make one more table when `kernels` > 0, with so many rows. std::invalid_argument for a result of
// another kind.
std::vector<Table> tables_of(const Json& result, size_t kernels = 0);

}  // namespace narrowgauge::bench
