// Stops itself, and says how much time has passed, in milliseconds, by the clock that leaves out the pause
// and by the one that does not, and where the pause's middle is by the former.
#include <csignal>
#include <cstdio>
#include <thread>

#include "core/running_clock.hpp"
#include "net/deadline.hpp"

int main() {
  using lockstep::RunningClock;
  using Steady = std::chrono::steady_clock;
  using std::chrono::duration_cast;
  using std::chrono::milliseconds;
  const auto begin = RunningClock::now();
  const auto steady_begin = Steady::now();
  // A deadline shorter than the pause, in a thread that waits when it begins.
  bool held = false;
  std::thread waiting([&] {
    int ends[2];
    if (pipe(ends) != 0) return;
    lockstep::net::await_ready(ends[0], POLLIN, RunningClock::now() + milliseconds(2500));
    held = Steady::now() - steady_begin > milliseconds(4000);
  });
  std::this_thread::sleep_for(milliseconds(500));
  std::raise(SIGSTOP);
  const auto end = RunningClock::now();
  const auto steady_end = Steady::now();
  const auto middle = RunningClock::at(steady_begin + (steady_end - steady_begin) / 2);
  waiting.join();
  std::printf("%ld %ld %ld %ld %d\n", static_cast<long>(duration_cast<milliseconds>(end - begin).count()),
              static_cast<long>(duration_cast<milliseconds>(steady_end - steady_begin).count()),
              static_cast<long>(duration_cast<milliseconds>(RunningClock::at(steady_begin) - begin).count()),
              static_cast<long>(duration_cast<milliseconds>(end - middle).count()), held ? 1 : 0);
  return 0;
}
