#pragma once
#include <cstdint>

namespace narrowgauge::ops {

// order (count) = the permutation that sorts host tokens (count), any ints, equal ones staying in their
// order: what embedding_backward takes. A pure function of the tokens; 65,536 of them take well under 2 ms.
// 0 <= count < 2^31.
void token_order(const int32_t* tokens, int64_t count, int32_t* order);

}  // namespace narrowgauge::ops
