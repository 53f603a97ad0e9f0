#pragma once
#include <stdexcept>

// A stop request with a deadline, for the whole process: long computations ask at their seams whether they
// may go on.
namespace narrowgauge {

// Thrown out of a computation that a stop request no longer waits for. Nobody's error: whoever made the
// request catches it.
class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted by a stop request") {}
};

// From `seconds` (0 or more) after now on, interruption_point() throws; replaces an earlier request.
// Async-signal-safe.
void request_interruption(double seconds);
void withdraw_interruption();  // no request any more; async-signal-safe

// Seconds until the deadline, negative after it; infinity without a request.
double seconds_to_interruption();

// Throws Interrupted when a request's deadline has passed; one relaxed load when there is no request. Any
// thread.
void interruption_point();

}  // namespace narrowgauge
