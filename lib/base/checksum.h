#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace narrowgauge {

// Streaming XXH3-64, seed 0. The result depends only on the bytes, not on how they were cut into updates.
class Checksum {
 public:
  Checksum();
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;
  ~Checksum();

  void update(const void* data, size_t bytes);
  void update(std::string_view bytes) { update(bytes.data(), bytes.size()); }
  [[nodiscard]] uint64_t value() const;  // of all bytes so far; more may follow

 private:
  struct State;
  std::unique_ptr<State> state_;
};

uint64_t checksum(const void* data, size_t bytes);
uint64_t checksum(std::string_view bytes);

// 16 lower-case hexadecimal digits.
std::string checksum_hex(uint64_t value);

}  // namespace narrowgauge
