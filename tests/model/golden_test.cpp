#include "tests/model/cases.h"
#include "tests/support/catch.h"

using namespace narrowgauge::test;

TEST_CASE("golden models, fp32") { check_golden(at::kCPU); }
TEST_CASE("golden models, bf16") { check_golden_bf16(at::kCPU); }
