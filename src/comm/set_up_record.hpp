#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/diagnostics/flight_recorder.hpp"
#include "comm/transport/provisional_transport.hpp"
#include "lockstep/comm/process_group.hpp"
#include "lockstep/comm/store.hpp"

namespace lockstep::comm {

/// What the ranks communicate in the set-up of their program, before a training that survives lost ranks. A
/// process that replaces one of them does the same set-up alone, later. So the results of object collectives,
/// which are small, are kept in the job's store, by their number in their group, and replayed there; and what
/// it cannot replay, the first processes find in themselves. One thread.
///
///     set-up of the program                            first processes     one that replaces another
///     -----------------------------------------------  ------------------  -------------------------------
///     an object collective                             keeps the result    takes it
///     another operation, or a barrier                  counts              throws UsageError (LonelySetUp)
///     what a new process leaves out (prepare(),        neither             does not get there
///     checkpoints, ...), within LeftOutByNewcomers
class SetUpRecord {
 public:
  using Results = std::vector<std::string>;
  /// Of all results of a job.
  static constexpr std::size_t kMostBytes = std::size_t{16} * 1024 * 1024;

  /// `store`: keys that all processes of a rank have. `lonely`: null in a first process.
  SetUpRecord(Store store, std::shared_ptr<const FlightRecorder> recorder,
              std::shared_ptr<const LonelySetUp> lonely)
      : store_(std::move(store)), recorder_(std::move(recorder)), lonely_(std::move(lonely)) {}

  /// An object collective of the group `path`, which `communicate` carries out: its result. `what`: name and
  /// root, the same on all ranks. `keeper`: "" if all ranks have the same result, otherwise this rank's name;
  /// `keeps`: whether this rank keeps it. In a new process throws UsageError if the first ones did not do the
  /// same.
  Results result(const std::string& path, const std::string& what, const std::string& keeper, bool keeps,
                 const std::function<Results()>& communicate);
  void note_barrier();

  void enter_left_out();
  void leave_left_out();

  /// The training begins. Returns what the set-up has done that a new process cannot do, "all_reduce" for
  /// instance, or "".
  std::string end();

 private:
  /// Whether nothing more is kept, and nobody asks what the set-up has done.
  bool is_over() const noexcept { return has_ended_ || !unanswered_.empty(); }
  /// The operations after `before`, up to now, do not count.
  void leave_out(std::uint64_t before);
  void keep(const std::string& key, const std::string& what, const Results& results);
  Results kept(const std::string& key, const std::string& what) const;
  std::string name_of(std::uint64_t operation) const;

  Store store_;
  std::shared_ptr<const FlightRecorder> recorder_;
  std::shared_ptr<const LonelySetUp> lonely_;
  /// By group: how many object collectives it had.
  std::map<std::string, int> numbers_;
  std::size_t bytes_ = 0;
  bool has_ended_ = false;
  /// Within LeftOutByNewcomers: how many of them, and the operations before the outermost one.
  int depth_ = 0;
  std::uint64_t entered_ = 0;
  /// All operations up to that one do not count. The first one that does: its name.
  std::uint64_t seen_ = 0;
  std::string unanswered_;
};

/// What the rank does while it exists, a new process leaves out of its set-up. *Local*.
class LeftOutByNewcomers {
 public:
  explicit LeftOutByNewcomers(const ProcessGroup& group);
  ~LeftOutByNewcomers();
  LeftOutByNewcomers(const LeftOutByNewcomers&) = delete;
  LeftOutByNewcomers& operator=(const LeftOutByNewcomers&) = delete;

 private:
  std::shared_ptr<SetUpRecord> record_;
};

/// See SetUpRecord::end(); "" if nothing was recorded. *Local*.
std::string end_set_up(const ProcessGroup& group);

}  // namespace lockstep::comm
