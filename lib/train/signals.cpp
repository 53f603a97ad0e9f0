#include "lib/train/signals.h"

#include <unistd.h>
#include <csignal>

#include "lib/base/interruption.h"

namespace narrowgauge::train {
namespace {

volatile std::sig_atomic_t received = 0;
double grace_seconds = 0;  // written before the handlers are there
struct sigaction previous_interrupt;
struct sigaction previous_terminate;

extern "C" void request_stop(int signal) {
  if (received != 0) _exit(128 + signal);
  request_interruption(grace_seconds);
  received = signal;
}

}  // namespace

StopSignals::StopSignals(double grace) {
  received = 0;
  grace_seconds = grace;
  struct sigaction action = {};
  action.sa_handler = request_stop;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, &previous_interrupt);
  sigaction(SIGTERM, &action, &previous_terminate);
}

StopSignals::~StopSignals() {
  sigaction(SIGINT, &previous_interrupt, nullptr);
  sigaction(SIGTERM, &previous_terminate, nullptr);
  withdraw_interruption();
}

bool StopSignals::requested() const { return received != 0; }

const char* StopSignals::name() const {
  if (received == SIGINT) return "SIGINT";
  return received == SIGTERM ? "SIGTERM" : "";
}

}  // namespace narrowgauge::train
