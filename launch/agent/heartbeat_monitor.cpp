#include "agent/heartbeat_monitor.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/runtime/heartbeat_file.hpp"
#include "core/runtime/process_handle.hpp"
#include "net/deadline.hpp"

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;

/// The time since a beat, without the pauses of this launcher, in which the ranks were paused, too: by a
/// suspended job, a frozen cgroup or virtual machine. A damaged file may contain any time.
milliseconds since(std::int64_t beat_time) {
  using Monotonic = std::chrono::steady_clock::time_point;
  const auto passed = net::Clock::now() - net::Clock::at(Monotonic(std::chrono::nanoseconds(beat_time)));
  return std::max(std::chrono::duration_cast<milliseconds>(passed), milliseconds(0));
}

/// A heartbeat file, and the stacks that its process has written beside it.
void remove_files(const std::string& heartbeat_file) {
  unlink(heartbeat_file.c_str());
  unlink(stacks_file(heartbeat_file).c_str());
}

}  // namespace

HeartbeatMonitor::HeartbeatMonitor(const std::string& folder, const Assignment& assignment, int ranks,
                                   std::string node)
    : folder_(fmt::format("{}/heartbeats_{}", folder, assignment.round)),
      first_rank_(assignment.first_rank),
      node_(std::move(node)) {
  std::error_code ignored;  // The first file gives a better error.
  std::filesystem::create_directories(folder_, ignored);
  for (int rank = 0; rank < ranks; ++rank) {
    files_.push_back(fmt::format("{}/{}", folder_, rank));
    make_heartbeat_file(file(rank));
  }
}

HeartbeatMonitor::~HeartbeatMonitor() {
  // Spares have files of their own.
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void HeartbeatMonitor::renew_file(int local_rank) const {
  remove_files(file(local_rank));
  make_heartbeat_file(file(local_rank));
}

void HeartbeatMonitor::remove_file_of_spare(int local_rank, int process) const {
  remove_files(file_of_spare(local_rank, process));
}

void HeartbeatMonitor::use_file_of_spare(int local_rank, int process) {
  remove_files(file(local_rank));
  files_[static_cast<std::size_t>(local_rank)] = file_of_spare(local_rank, process);
}

std::vector<StackTarget> HeartbeatMonitor::stack_targets(const std::vector<Worker>& workers) const {
  std::vector<StackTarget> targets;
  for (const auto& worker : workers) {
    if (!worker.status)
      targets.push_back({first_rank_ + worker.local_rank, worker.pid, file(worker.local_rank)});
  }
  return targets;
}

std::vector<RankStatus> HeartbeatMonitor::statuses(const std::vector<Worker>& workers) const {
  std::vector<RankStatus> result;
  for (const auto& worker : workers) {
    RankStatus rank;
    rank.rank = first_rank_ + worker.local_rank;
    rank.process = fmt::format("{}{}pid {}", node_, node_.empty() ? "" : ", ", worker.pid);
    rank.beat = read_heartbeat(file(worker.local_rank));
    if (rank.beat) {
      rank.counters = read_rank_counters(file(worker.local_rank));
      rank.still = since(rank.beat->beat_time);
      // Needed only for ranks without a recent heartbeat.
      if (const char state = rank.still >= kInterval ? process_stat(rank.beat->pid).state : 0; state != 0)
        rank.process_state = state;
    }
    rank.status = worker.status;
    result.push_back(std::move(rank));
  }
  return result;
}

std::optional<std::uint64_t> HeartbeatMonitor::best_step() const {
  std::optional<std::uint64_t> best;
  for (const auto& file : files_) {
    const auto record = read_heartbeat(file);
    if (record) best = std::max(best.value_or(0), record->step);
  }
  return best;
}

}  // namespace lockstep::launch
