#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// What a rank does at a time, as far as others are concerned.
enum class Activity : std::uint32_t {
  /// Its own work: if the job stands still, it is this rank's doing.
  working = 1,
  /// It waits for other ranks.
  waiting = 2,
  /// Its own work in which it may wait for others, as in a backward that averages gradients.
  either = 3,
};

/// Where a rank was when it last said so.
struct HeartbeatRecord {
  pid_t pid = 0;
  /// The signal that makes the process write its stacks (see stacks_file); 0: none.
  int stack_signal = 0;
  Activity activity = Activity::working;
  /// "all_reduce", "forward"; printable, at most 40 letters.
  std::string what;
  /// Counts `what`, as in "all_reduce #412"; 0: not counted.
  std::uint64_t number = 0;
  /// Optimizer steps done.
  std::uint64_t step = 0;
  /// CLOCK_MONOTONIC of this host, in nanoseconds.
  std::int64_t beat_time = 0;

  /// "all_reduce #412"; "forward, step 57" for a rank's own work.
  std::string text() const;
};

/// How a rank shows its launcher that it moves, and where it is: a small file that both have open
/// (LOCKSTEP_HEARTBEAT_FILE), so that a hanging job can be told which rank hangs.
///
/// Beats cost some tens of nanoseconds, never wait and never fail; any thread may beat. Without a launcher
/// that asks for them only this process sees them. The library beats by itself in collectives, barriers,
/// forward, backward and optimizer steps; a program beats where it works long without them:
/// `process_heartbeat().working("tokenizing")`. All members are *Local*.
class Heartbeat {
 public:
  /// Beats into nothing.
  Heartbeat() noexcept = default;
  /// Beats into `path`, a file that make_heartbeat_file made. A file that cannot be used, or that another
  /// living process beats into already (a parent whose environment this process has), is as none.
  explicit Heartbeat(const std::string& path) noexcept;
  /// Beats into memory of this process: for last() alone.
  struct InMemory {};
  explicit Heartbeat(InMemory) noexcept;
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  /// Whether somebody else looks at the beats.
  bool is_watched() const noexcept { return page_ != nullptr && in_file_; }

  /// What was beaten last; nothing before the first beat, and in a heartbeat that beats into nothing.
  std::optional<HeartbeatRecord> last() const;

  void working(std::string_view what, std::uint64_t number = 0) noexcept;
  void perhaps_waiting(std::string_view what, std::uint64_t number = 0) noexcept;

  /// One optimizer step more is done.
  void finished_step() noexcept;
  /// The program goes on behind this step: after it has loaded a checkpoint. A restart counts as progress
  /// only when it gets beyond the steps of the attempts before it.
  void resumed_at(std::uint64_t step) noexcept;

  /// Names the signal that makes this process write its stacks.
  void accepts_stack_signal(int number) noexcept;

  /// Says, as long as it lives, that this rank waits for others. Afterwards it does what it did before; but
  /// when an exception ends the wait, it stays what was done last.
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

  /// The file's content. Its form is that of this version of the library on this host, and no other's.
  struct Page;

 private:
  void beat(Activity activity, std::string_view what, std::uint64_t number) noexcept;

  Page* page_ = nullptr;
  bool in_file_ = false;
};

/// This process's heartbeat: that of LOCKSTEP_HEARTBEAT_FILE, else one in memory. Opened at the first call,
/// never closed.
Heartbeat& process_heartbeat() noexcept;

/// For a launcher: makes the file of one rank, readable by this user only. Throws lockstep::Error naming it.
/// *Local*.
void make_heartbeat_file(const std::string& path);

/// Where a process writes its stacks when its HeartbeatRecord::stack_signal comes: beside its heartbeat file.
/// The text is complete when it ends with kEndOfStacks.
std::string stacks_file(const std::string& heartbeat_file);
inline constexpr const char* kEndOfStacks = "end of stacks\n";

/// For a launcher: what the rank wrote last; nothing when it never beat, or when the file is gone, cut short
/// or no heartbeat. Whatever is in the file, this neither fails nor waits. *Local*.
std::optional<HeartbeatRecord> read_heartbeat(const std::string& path);

}  // namespace lockstep
