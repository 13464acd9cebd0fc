#include "agent/heartbeat_monitor.hpp"

#include <fmt/core.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "core/runtime/process_handle.hpp"

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kInterval{1000};

/// By the clock of the heartbeats. A time that a broken file gives may lie anywhere.
milliseconds since(std::int64_t beat_time) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t passed = now.tv_sec * 1'000'000'000 + now.tv_nsec - beat_time;
  return milliseconds(std::max<std::int64_t>(passed, 0) / 1'000'000);
}

}  // namespace

HeartbeatMonitor::HeartbeatMonitor(const std::string& folder, const Assignment& place, int ranks,
                                   const std::string& node)
    : first_rank_(place.first_rank), node_(node), next_look_(Clock::now() + kInterval) {
  const std::string own_folder = fmt::format("{}/heartbeats_{}", folder, place.round);
  std::error_code ignored;  // The first file says it better.
  std::filesystem::create_directories(own_folder, ignored);
  for (int rank = 0; rank < ranks; ++rank) {
    files_.push_back(fmt::format("{}/{}", own_folder, rank));
    make_heartbeat_file(files_.back());
  }
}

HeartbeatMonitor::~HeartbeatMonitor() {
  for (const auto& file : files_) {
    unlink(file.c_str());
    unlink(stacks_file(file).c_str());
  }
}

void HeartbeatMonitor::add_to(Environment& environment, int local_rank) const {
  environment["LOCKSTEP_HEARTBEAT_FILE"] = file(local_rank);
}

std::vector<StackTarget> HeartbeatMonitor::stack_targets(const std::vector<Worker>& workers) const {
  std::vector<StackTarget> targets;
  for (const auto& worker : workers) {
    if (!worker.status)
      targets.push_back({first_rank_ + worker.local_rank, worker.pid, file(worker.local_rank)});
  }
  return targets;
}

std::vector<RankStatus> HeartbeatMonitor::look(const std::vector<Worker>& workers) {
  next_look_ = Clock::now() + kInterval;
  return statuses(workers);
}

std::vector<RankStatus> HeartbeatMonitor::statuses(const std::vector<Worker>& workers) const {
  std::vector<RankStatus> result;
  for (const auto& worker : workers) {
    RankStatus rank;
    rank.rank = first_rank_ + worker.local_rank;
    rank.place = fmt::format("{}{}pid {}", node_, node_.empty() ? "" : ", ", worker.pid);
    rank.beat = read_heartbeat(file(worker.local_rank));
    if (rank.beat) {
      rank.still = since(rank.beat->beat_time);
      // Looked up only where it may matter: a rank that has just beaten does what it says.
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
