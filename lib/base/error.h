#pragma once
#include <stdexcept>
#include <string>

namespace narrowgauge {

// Exit codes of the program.
inline constexpr int kExitDone = 0;
inline constexpr int kExitUserError = 2;
inline constexpr int kExitBug = 70;

// The user can mend this: a bad config, a missing file, a model that does not fit. The message is one
// line that names the key or file, the value, the rule and the remedy. Everything else that is thrown
// is a bug of ours.
class UserError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace narrowgauge
