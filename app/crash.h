#pragma once

namespace narrowgauge::app {

// From now on a bug (an exception that nothing catches, SIGSEGV, SIGABRT and the like) prints what it was and
// the stack where it happened on stderr, and ends the process with kExitBug. Nothing may catch exceptions
// other than UserError in between: an uncaught one still has its stack, a caught one has lost it.
void install_crash_report();

}  // namespace narrowgauge::app
