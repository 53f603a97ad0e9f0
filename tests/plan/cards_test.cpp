#include "lib/plan/cards.h"

#include "lib/base/error.h"
#include "tests/support/catch.h"

namespace narrowgauge::plan {
namespace {

TEST_CASE("card rates are dense bf16 with fp32 accumulation") {
  REQUIRE(card_bf16_rate("NVIDIA GeForce RTX 5080") == 112.6e12);
  REQUIRE(card_bf16_rate("NVIDIA GeForce RTX 4060 Ti") == 44.1e12);
  REQUIRE(card_bf16_rate("NVIDIA A100-SXM4-40GB") == 312e12);
  REQUIRE(card_bf16_rate("NVIDIA A100-SXM4-80GB") == 312e12);
  REQUIRE(card_bf16_rate("NVIDIA L4") == 121e12);
  REQUIRE(card_bf16_rate("NVIDIA H100 80GB HBM3") == 989.4e12);
  REQUIRE(card_bf16_rate("NVIDIA H100 PCIe") == 756e12);
  REQUIRE(card_bf16_rate("NVIDIA H200") == 989.4e12);
  REQUIRE_FALSE(card_bf16_rate("NVIDIA GeForce RTX 4080 Laptop GPU"));
  REQUIRE_FALSE(card_bf16_rate("NVIDIA A1000"));
  REQUIRE_FALSE(card_bf16_rate("CPU"));
}

TEST_CASE("a card by the name that a person writes") {
  for (const char* text : {"RTX 5080", "rtx5080", "5080", "GeForce RTX 5080", "NVIDIA GeForce RTX 5080"}) {
    CHECK(named_card(text).name == "GeForce RTX 5080");
  }
  CHECK(named_card("4060 Ti 16 GB").bytes() == int64_t{16} << 30);
  CHECK(named_card("rtx 4060ti").bytes() == int64_t{8} << 30);
  CHECK(named_card("h100").name == "H100");
  CHECK(named_card("a100 sxm4 40gb").bytes() == int64_t{40} << 30);
  for (const char* text : {"3060", "4080", "5070 Ti", "5080", "5090", "A100", "L4", "H100", "H200"}) {
    CHECK_NOTHROW(named_card(text));
  }
}

TEST_CASE("an unknown card names the nearest one") {
  const auto message = [](const char* text) -> std::string {
    try {
      named_card(text);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(message("RTX 5081").find("did you mean \"GeForce RTX 5080\"") != std::string::npos);
  CHECK(message("Voodoo").find("\"Voodoo\" is not in the table of cards; the table has") !=
        std::string::npos);
  CHECK(message("").find("is not in the table") != std::string::npos);
}

TEST_CASE("limits by compute capability") {
  const cuda::DeviceLimits limits = named_card("5080").limits();
  CHECK(limits.sm_count == cuda::kRtx5080Limits.sm_count);
  CHECK(limits.shared_bytes_per_block == cuda::kRtx5080Limits.shared_bytes_per_block);
  CHECK(limits.max_threads_per_sm == cuda::kRtx5080Limits.max_threads_per_sm);
  CHECK(limits.compute_major == 12);
  CHECK(named_card("H200").limits().shared_bytes_per_block == 232448);
  CHECK(named_card("A100").limits().shared_bytes_per_block == 166912);
  CHECK(named_card("4080").limits().max_threads_per_sm == 1536);
}

}  // namespace
}  // namespace narrowgauge::plan
