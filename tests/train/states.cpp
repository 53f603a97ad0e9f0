// 8-bit AdamW states against fp32 ones on the CPU; minutes.
#include "tests/base/temporary_folder.h"
#include "tests/support/catch.h"
#include "tests/train/runs.h"

namespace narrowgauge::test {
namespace {

TEST_CASE("8-bit AdamW tracks fp32 AdamW on the CPU") {
  const TemporaryFolder folder;
  require_8bit_tracks_fp32(byte_config(write_corpus(folder.path()), "cpu", "fp32", 2, 96, 64), {1, 2});
}

}  // namespace
}  // namespace narrowgauge::test
