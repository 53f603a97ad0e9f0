#pragma once
// Catch2 2 (Debian 12) and 3 (Ubuntu 24.04): use only what both know.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
