// 8-bit AdamW states against fp32 ones on the GPU: three seeds of 1000 steps.
#include "tests/base/temporary_folder.h"
#include "tests/support/catch.h"
#include "tests/train/runs.h"

namespace narrowgauge::test {
namespace {

TEST_CASE("8-bit AdamW tracks fp32 AdamW on the GPU over three seeds") {
  const TemporaryFolder folder;
  Config config = byte_config(write_corpus(folder.path()), "cuda", "bf16", 4, 256, 128);
  config.optim.master = "split";
  require_8bit_tracks_fp32(config, {1, 2, 3});
}

}  // namespace
}  // namespace narrowgauge::test
