#include "lib/bench/table.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/base/text.h"

namespace narrowgauge::bench {
namespace {

std::string cell(const std::vector<std::string>& row, size_t column) {
  return column < row.size() ? row[column] : "";
}

// Characters, not bytes, of UTF-8.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & '\xC0') != '\x80'; }));
}

std::string padded(const std::string& text, size_t width, bool left) {
  const std::string space(width - std::min(width, width_of(text)), ' ');
  return left ? text + space : space + text;
}

std::string markdown_row(const std::vector<std::string>& row, size_t columns) {
  std::string line = "|";
  for (size_t c = 0; c < columns; ++c) {
    std::string text = cell(row, c);
    for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
    line += ' ' + text + " |";
  }
  return line + '\n';
}

}  // namespace

std::string to_text(const Table& table) {
  const size_t columns = table.columns.size();
  std::vector<size_t> widths(columns);
  for (size_t c = 0; c < columns; ++c) {
    widths[c] = width_of(table.columns[c]);
    for (const auto& row : table.rows) widths[c] = std::max(widths[c], width_of(cell(row, c)));
  }
  const auto line = [&](const std::vector<std::string>& row) {
    std::string text;
    for (size_t c = 0; c < columns; ++c)
      text += (c > 0 ? "  " : "") + padded(cell(row, c), widths[c], c == 0);
    while (!text.empty() && text.back() == ' ') text.pop_back();
    return text + '\n';
  };
  std::string text = table.title.empty() ? "" : table.title + '\n';
  text += line(table.columns);
  for (const auto& row : table.rows) text += line(row);
  for (const std::string& note : table.notes) text += note + '\n';
  return text;
}

std::string to_markdown(const Table& table) {
  std::string text = table.title.empty() ? "" : fmt::format("**{}**\n\n", table.title);
  text += markdown_row(table.columns, table.columns.size());
  text += "|---|";
  for (size_t c = 1; c < table.columns.size(); ++c) text += "---:|";
  text += '\n';
  for (const auto& row : table.rows) text += markdown_row(row, table.columns.size());
  if (!table.notes.empty()) text += '\n' + join(table.notes, "\n") + '\n';
  return text;
}

}  // namespace narrowgauge::bench
