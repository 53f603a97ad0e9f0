// main() of every CPU test program: with a reason_to_skip() it exits with 77, which ctest shows as skipped.
#include <cstdio>

#include "tests/support/skip.h"
#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

int main(int argc, char** argv) {
  if (const std::string reason = narrowgauge::test::reason_to_skip(); !reason.empty()) {
    std::printf("skipped: %s\n", reason.c_str());
    return 77;
  }
  return Catch::Session().run(argc, argv) == 0 ? 0 : 1;
}
