#pragma once
#include <string>
#include <vector>

namespace narrowgauge::bench {

// Rows of ready text. The first column is set to the left, the others to the right; a short row is filled up.
struct Table {
  std::string title;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows{};
  std::vector<std::string> notes{};  // sentences below the table
};

std::string to_text(const Table& table);      // aligned, for a terminal
std::string to_markdown(const Table& table);  // the title as bold text, | escaped

}  // namespace narrowgauge::bench
