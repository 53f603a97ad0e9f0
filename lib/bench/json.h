#pragma once
#include <nlohmann/json.hpp>

namespace narrowgauge::bench {

using Json = nlohmann::ordered_json;  // results keep the order in which they were measured

}  // namespace narrowgauge::bench
