// What the tests of dying and of stacks start: `crash_program HOW`.
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>

#include "core/runtime/signal_free_thread.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"
#include "lockstep/core/runtime/program.hpp"

// The name of what NCCL's watchdog throws.
namespace c10 {
struct DistBackendError : std::runtime_error {
  using runtime_error::runtime_error;
};
}  // namespace c10

// Not in an anonymous namespace, and not inlined: their names are what the tests look for.
namespace crash {

volatile int* nowhere = nullptr;
volatile int depth = 0;

[[gnu::noinline]] void write_to_nowhere() { *nowhere = 1; }

[[gnu::noinline]] int recurse_without_end(int level) {
  volatile char room[4096];
  room[0] = static_cast<char>(level);
  return depth < 0 ? 0 : recurse_without_end(level + 1) + room[0];
}

/// Threads that are on their way to their sleep have other stacks.
std::latch on_their_way(2);

[[gnu::noinline]] void sleep_in_a_thread() {
  on_their_way.count_down();
  std::this_thread::sleep_for(std::chrono::seconds(60));
}
[[gnu::noinline]] void sleep_in_main() { std::this_thread::sleep_for(std::chrono::seconds(60)); }

[[gnu::noinline]] void throw_in_a_thread() { throw std::runtime_error("a \"quoted\" word\nand a line"); }

int sleep() {
  std::thread second(sleep_in_a_thread);
  std::thread deaf([] {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    sleep_in_a_thread();
  });
  on_their_way.wait();
  lockstep::process_heartbeat().working("sleep");
  sleep_in_main();
  second.join();
  deaf.join();
  return 0;
}

int run(const std::string& how) {
  if (how == "segv") write_to_nowhere();
  if (how == "segv_in_thread") std::thread(write_to_nowhere).join();
  if (how == "overflow") return recurse_without_end(0);
  if (how == "overflow_in_library_thread")
    lockstep::signal_free_thread([] { recurse_without_end(0); }).join();
  if (how == "segv_in_library_thread") lockstep::signal_free_thread(write_to_nowhere).join();
  if (how == "abort") std::abort();
  if (how == "terminate") std::thread(throw_in_a_thread).join();
  if (how == "watchdog") std::thread([] { throw c10::DistBackendError("a rank is lost"); }).join();
  if (how == "raise_fpe") std::raise(SIGFPE);
  if (how == "throw") throw lockstep::DataError("no label");
  if (how == "sleep") return sleep();
  return 0;
}

}  // namespace crash

int main(int argc, char** argv) {
  return lockstep::run_program("crash", [&] { return crash::run(argc > 1 ? argv[1] : ""); });
}
