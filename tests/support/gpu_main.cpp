// main() of every GPU test program: without a CUDA device it exits with 77, which ctest shows as skipped.
#include <cstdio>

#include "tests/support/gpu.h"
#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

int main(int argc, char** argv) {
  if (!narrowgauge::test::cuda_available()) {
    std::puts("skipped: no CUDA device");
    return 77;
  }
  return Catch::Session().run(argc, argv) == 0 ? 0 : 1;
}
