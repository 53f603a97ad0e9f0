#pragma once
#include <memory>
#include <optional>
#include <string>

namespace narrowgauge::bench {

// One reading of a card.
struct Clocks {
  int sm_mhz = 0;
  int memory_mhz = 0;
  double watts = 0;
  int celsius = 0;
};

// The driver's management library, libnvidia-ml.so.1, opened at run time: it belongs to the driver and may be
// absent. Failed readings are 0.
class Nvml {
 public:
  // `pci`: "00000000:3b:00.0".
  explicit Nvml(const std::string& pci);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  [[nodiscard]] std::optional<Clocks> clocks() const;  // nothing when the library or the card is not found
  [[nodiscard]] std::string driver() const;            // "580.159.04", or "" when unknown

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

}  // namespace narrowgauge::bench
