#pragma once

#include <iosfwd>
#include <optional>

#include "lockstep/core/environment.hpp"
#include "output/output_relay.hpp"
#include "plan/launch_plan.hpp"
#include "plan/worker_environment.hpp"
#include "process/guardian.hpp"
#include "process/signal_queue.hpp"
#include "process/temporary_folder.hpp"
#include "process/worker_group.hpp"
#include "report/failure_report.hpp"

namespace lockstep::launch {

/// Starts the ranks of one node, watches over them, and answers with an exit status. It sleeps until
/// something happens: a rank ends, a signal comes, or the time to end is over. One object a process, on its
/// only thread.
///
/// - A rank fails: the others get SIGTERM, and SIGKILL when the shutdown timeout is over; then the group is
/// started
///   anew while restarts are left.
/// - SIGTERM, SIGINT, SIGQUIT or SIGHUP comes: the ranks get the same signal, and the same time. A second
/// one: SIGKILL
///   at once.
/// - SIGUSR1 and SIGUSR2 are passed on.
/// - Whatever the ranks left running when they are gone gets SIGTERM, then SIGKILL.
class Agent {
 public:
  Agent(const LaunchPlan& plan, const Environment& environment, Console& console);

  /// Runs the job to its end. Returns 0, the first failure's exit code, or 128 + the number of a signal.
  /// Throws StartError when the program cannot be started; nothing runs then.
  int run();

 private:
  using TimePoint = SignalQueue::Clock::time_point;
  enum class Stage { running, stopping, killing };

  Attempt next_attempt(int restart_count);
  void start_ranks(const Attempt& attempt);
  void supervise();
  void end_leftovers();
  void wait_for_event();
  void on_event(const SignalQueue::Event& event);
  void on_signal(int number);
  void on_child_ended();
  void on_deadline();
  void stop(int signal_number);
  void kill();
  void report_failure(const Attempt& attempt);
  FailureRecord record(const Attempt& attempt, const Worker& worker) const;
  void tell_who_started_us(const Attempt& attempt) const;
  int exit_code() const;

  const LaunchPlan& plan_;
  const Environment& environment_;
  Console& console_;
  std::ostream& log_;
  SignalQueue signals_;
  TemporaryFolder folder_;
  Guardian guardian_;
  OutputRelay relay_;
  std::optional<WorkerGroup> group_;
  Stage stage_ = Stage::running;
  std::optional<TimePoint> deadline_;
  /// The rank that failed first in this attempt.
  std::optional<std::size_t> first_failure_;
  /// The rank to blame for it, once that is reported.
  std::size_t cause_ = 0;
  /// The kernel's count when this attempt began.
  std::optional<std::int64_t> memory_kills_before_;
  /// The first signal that asked the job to end; 0: none did.
  int end_signal_ = 0;
  bool abandoned_ = false;
};

}  // namespace lockstep::launch
