#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace narrowgauge {

// Least number of inserted, deleted, replaced or swapped neighbouring characters that turn a into b (optimal
// string alignment distance).
size_t edit_distance(std::string_view a, std::string_view b);

// The name most like `text`, or "" when none is near: a distance of at most a third of the longer one's
// length, and at least 1. The earlier name wins a tie.
std::string nearest_name(std::string_view text, const std::vector<std::string>& names);

// ' (did you mean "NAME"?)' or "" when none is near: the tail of an error message.
std::string did_you_mean(std::string_view text, const std::vector<std::string>& names);

// "a, b, c".
std::string join(const std::vector<std::string>& parts, std::string_view separator = ", ");

}  // namespace narrowgauge
