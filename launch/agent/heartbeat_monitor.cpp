#include "agent/heartbeat_monitor.hpp"

#include <fmt/core.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <ostream>

#include "core/runtime/process_handle.hpp"

namespace lockstep::launch {
namespace {

/// Nothing has happened to the rank between the two looks.
bool unchanged(const RankStatus& one, const RankStatus& other) {
  if (one.status != other.status || one.beat.has_value() != other.beat.has_value()) return false;
  return !one.beat || one.beat->beat_time == other.beat->beat_time;
}

using std::chrono::milliseconds;

constexpr milliseconds kInterval{1000};

/// By the clock of the heartbeats. A time that a broken file gives may lie anywhere.
milliseconds since(std::int64_t beat_time) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t passed = now.tv_sec * 1'000'000'000 + now.tv_nsec - beat_time;
  return milliseconds(std::max<std::int64_t>(passed, 0) / 1'000'000);
}

/// In time for the coordinator to hear of all nodes before a hang is one.
milliseconds told_after(const HangOptions& options) {
  const bool ends = options.timeout.count() > 0;
  return (ends ? std::min(options.timeout, options.notice_after) : options.notice_after) / 2;
}

}  // namespace

bool StillReport::is_outdated(const std::vector<RankStatus>& now) const {
  return !std::equal(now.begin(), now.end(), told_.begin(), told_.end(), unchanged);
}

std::optional<std::vector<RankStatus>> StillReport::news(const std::vector<RankStatus>& now) {
  const bool still = std::all_of(now.begin(), now.end(), [this](const RankStatus& view) {
    return view.status || (view.beat && view.still >= after_);
  });
  if (still ? !is_outdated(now) : told_.empty()) return std::nullopt;
  told_ = still ? now : std::vector<RankStatus>();
  return told_;
}

std::string hang_notice(const std::string& text) {
  return fmt::format("lockstep run: the job hangs: {}. 'lockstep stacks {}' shows where in the program\n",
                     text, getpid());
}

std::string heartbeat_file(const std::string& folder, int round, int local_rank) {
  return fmt::format("{}/heartbeats_{}/{}", folder, round, local_rank);
}

HeartbeatMonitor::HeartbeatMonitor(const std::string& folder, const Assignment& place, int ranks,
                                   const std::string& node, const HangOptions& options,
                                   bool coordinator_judges)
    : first_rank_(place.first_rank),
      node_(node),
      coordinator_judges_(coordinator_judges),
      judge_(options),
      report_(told_after(options)),
      next_look_(Clock::now() + kInterval) {
  for (int rank = 0; rank < ranks; ++rank) {
    files_.push_back(heartbeat_file(folder, place.round, rank));
    std::error_code ignored;  // The file says it better.
    std::filesystem::create_directories(std::filesystem::path(files_.back()).parent_path(), ignored);
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

std::vector<RankStatus> HeartbeatMonitor::views(const std::vector<Worker>& workers) const {
  std::vector<RankStatus> result;
  for (const auto& worker : workers) {
    RankStatus view;
    view.rank = first_rank_ + worker.local_rank;
    view.place = fmt::format("{}{}pid {}", node_, node_.empty() ? "" : ", ", worker.pid);
    view.beat = read_heartbeat(file(worker.local_rank));
    if (view.beat) {
      view.still = since(view.beat->beat_time);
      // Looked up only where it may matter: a rank that has just beaten does what it says.
      if (const char state = view.still >= kInterval ? process_stat(view.beat->pid).state : 0; state != 0)
        view.process_state = state;
    }
    view.status = worker.status;
    result.push_back(std::move(view));
  }
  return result;
}

std::optional<Hang> HeartbeatMonitor::look(const std::vector<Worker>& workers, std::ostream& log) {
  next_look_ = Clock::now() + kInterval;
  const auto now = views(workers);
  if (coordinator_judges_) {
    if (auto news = report_.news(now)) news_ = std::move(news);
    return std::nullopt;
  }
  auto found = judge_.look(now);
  if (!found) return std::nullopt;
  if (found->ends_job) return std::move(found->hang);
  log << hang_notice(found->hang.text) << std::flush;
  return std::nullopt;
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
