#pragma once
#include "tests/model/support.h"

namespace narrowgauge::test {

// Checks (Catch assertions) that hold on every device.

// training_cases.cpp
void check_against_fp64(const at::Device& device);   // loss and gradients in fp32, every variant of the model
void check_bf16_error(const at::Device& device);     // at most twice that of the plain bf16 model
void check_recompute_bits(const Where& where);       // every level, and mixed levels
void check_accumulation(const at::Device& device);   // two passes add up
void check_tied_gradient(const at::Device& device);  // embedding + head
void check_documents(const at::Device& device);      // a document mask = documents on their own
void check_padding_stays_zero(const Where& where);

// golden_cases.cpp: every model of golden_folders().
void check_golden(const at::Device& device);
void check_golden_bf16(const at::Device& device);

}  // namespace narrowgauge::test
