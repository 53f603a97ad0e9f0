#include "lib/base/checksum.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace narrowgauge {

struct Checksum::State {
  XXH3_state_t xxh;
};

Checksum::Checksum() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->xxh); }
Checksum::Checksum(Checksum&&) noexcept = default;
Checksum& Checksum::operator=(Checksum&&) noexcept = default;
Checksum::~Checksum() = default;

void Checksum::update(const void* data, size_t bytes) {
  if (bytes > 0) XXH3_64bits_update(&state_->xxh, data, bytes);
}

uint64_t Checksum::value() const { return XXH3_64bits_digest(&state_->xxh); }

uint64_t checksum(const void* data, size_t bytes) { return XXH3_64bits(data, bytes); }
uint64_t checksum(std::string_view bytes) { return checksum(bytes.data(), bytes.size()); }

std::string checksum_hex(uint64_t value) { return fmt::format("{:016x}", value); }

}  // namespace narrowgauge
