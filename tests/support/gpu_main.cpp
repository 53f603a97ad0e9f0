// main() of every GPU test program: without a CUDA device or with a reason_to_skip() it exits with 77, which
// ctest shows as skipped.
#include <cstdio>

#include "tests/support/gpu.h"
#include "tests/support/skip.h"
#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

int main(int argc, char** argv) {
  using namespace narrowgauge::test;
  const std::string reason = cuda_available() ? reason_to_skip() : "no CUDA device";
  if (!reason.empty()) {
    std::printf("skipped: %s\n", reason.c_str());
    return 77;
  }
  return Catch::Session().run(argc, argv) == 0 ? 0 : 1;
}
