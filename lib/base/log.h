#pragma once
#include <filesystem>
#include <string_view>

namespace narrowgauge {

// One line per event on stderr. Thread-safe; the whole line goes out in one write. Line breaks inside a
// message become spaces. Errors and warnings begin with "narrowgauge: error: " and "narrowgauge: warning: ".
void log_info(std::string_view message);
void log_warn(std::string_view message);
void log_error(std::string_view message);

// Every later line is also appended to `path`, after the local date and time. Throws UserError when the file
// cannot be opened. A write to it that fails later (full disk) is reported once on stderr and ends the copy.
void set_log_file(const std::filesystem::path& path);
void close_log_file();

// A transient line at the bottom of a terminal (progress): each call replaces the last one, log lines are
// printed above it, and it never reaches the log file. Does nothing when stderr is no terminal. An empty text
// removes it.
void show_status(std::string_view text);

// True when stderr is a terminal, so that show_status draws.
bool status_is_live();

}  // namespace narrowgauge
