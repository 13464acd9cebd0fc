#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// The file's content. The format is private to this version of the library on this host.
struct HeartbeatPage;

/// What a rank is doing, as seen by the others.
enum class Activity : std::uint32_t {
  /// Its own work: if the job hangs, this rank is the cause.
  working = 1,
  /// Waiting for other ranks.
  waiting = 2,
  /// Its own work that may wait for others, such as a backward pass that averages gradients.
  either = 3,
};

/// The position of a rank at its last beat.
struct HeartbeatRecord {
  pid_t pid = 0;
  /// The signal that makes the process write its stacks, for a launcher; 0: none.
  int stack_signal = 0;
  Activity activity = Activity::working;
  /// "all_reduce", "forward"; printable, at most 40 characters.
  std::string what;
  /// Sequence number of `what`, as in "all_reduce #412"; 0: none.
  std::uint64_t number = 0;
  /// Optimizer steps done.
  std::uint64_t step = 0;
  /// CLOCK_MONOTONIC of this host, in nanoseconds.
  std::int64_t beat_time = 0;

  /// "all_reduce #412"; "forward, step 57" for a rank's own work.
  std::string text() const;
};

/// Shows the launcher what a rank is doing, through a small file that both have open
/// (LOCKSTEP_HEARTBEAT_FILE). The launcher can thus tell which rank of a job hangs.
///
/// A beat takes some tens of nanoseconds, never waits and never fails; any thread may beat. If the launcher
/// does not provide a file, only this process sees the beats. The library beats in collectives, barriers,
/// forward, backward and optimizer steps. A program beats where it works for long without them:
/// `process_heartbeat().working("tokenizing")`. All members are *Local*.
class Heartbeat {
 public:
  /// Beats are discarded.
  Heartbeat() noexcept = default;
  /// Beats into `path`, a file created by the launcher. Beats are discarded if the file cannot be used
  /// or if another live process (a parent from which the environment was inherited) uses it.
  explicit Heartbeat(const std::string& path) noexcept;
  /// Beats into memory of this process: for last() only.
  struct InMemory {};
  explicit Heartbeat(InMemory) noexcept;
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  /// Whether beats are written to a file, which other processes can read.
  bool is_watched() const noexcept { return page_ != nullptr && in_file_; }

  /// The last beat; nothing before the first beat, and if beats are discarded.
  std::optional<HeartbeatRecord> last() const;

  void working(std::string_view what, std::uint64_t number = 0) noexcept;
  void perhaps_waiting(std::string_view what, std::uint64_t number = 0) noexcept;

  /// One more optimizer step is done.
  void finished_step() noexcept;
  /// Sets the number of steps after a checkpoint was loaded. A restart counts as progress only when it passes
  /// the steps of the previous attempts.
  void resumed_at(std::uint64_t step) noexcept;

  /// Sets the signal that makes this process write its stacks.
  void accepts_stack_signal(int number) noexcept;

  /// Reports, during its lifetime, that this rank waits for others. The destructor restores the previous
  /// activity, unless an exception ends the wait.
  class Waiting {
   public:
    Waiting(Heartbeat& heartbeat, std::string_view what, std::uint64_t number) noexcept;
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    Heartbeat& heartbeat_;
    int exceptions_;
    Activity activity_ = Activity::working;
    char what_[40] = {};
    std::uint64_t number_ = 0;
  };

 private:
  void beat(Activity activity, std::string_view what, std::uint64_t number) noexcept;

  HeartbeatPage* page_ = nullptr;
  bool in_file_ = false;
};

/// This process's heartbeat: that of LOCKSTEP_HEARTBEAT_FILE, otherwise one in memory. Opened at the first
/// call, never closed.
Heartbeat& process_heartbeat() noexcept;

}  // namespace lockstep
