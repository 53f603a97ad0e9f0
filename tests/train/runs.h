#pragma once
#include <filesystem>
#include <string>

#include "lib/config/config.h"
#include "tests/train/rows.h"

namespace narrowgauge::test {

// Byte tokens of real_text() as a raw uint16 shard `folder`/text.bin; returns its path.
std::string write_corpus(const std::filesystem::path& folder);

// A byte model of `layers` x `hidden` in that dtype, trained on `corpus` with 16 sequences of `context` bytes
// a step.
Config byte_config(const std::string& corpus, const std::string& device, const std::string& dtype,
                   int64_t layers, int64_t hidden, int64_t context);

// The cache of kernel choices that train_run's runs share, a file of this process alone.
std::filesystem::path kernel_cache();

// Trains in this process, anew or with a resume word.
void train_run(const Config& config, const std::filesystem::path& run, const std::string& resume = "");

// Mean loss of the last `count` steps.
double mean_loss(const std::filesystem::path& run, size_t count);

// The share of the model's parameters whose states are 8-bit codes in the run's checkpoint of that step.
double eight_bit_share(const Config& config, const std::filesystem::path& run, int64_t step);

// For every seed trains 1000 steps with 8-bit and with fp32 states. The means of the last 100 losses,
// averaged over the seeds, must lie within 1 % of each other, with at least 80 % of the parameters in 8-bit
// states.
void require_8bit_tracks_fp32(Config config, const std::vector<int64_t>& seeds);

}  // namespace narrowgauge::test
