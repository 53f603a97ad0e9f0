#include "tests/model/cases.h"
#include "tests/support/catch.h"

using namespace narrowgauge::test;

TEST_CASE("golden models on the card, fp32") { check_golden({at::kCUDA, 0}); }
TEST_CASE("golden models on the card, bf16") { check_golden_bf16({at::kCUDA, 0}); }
