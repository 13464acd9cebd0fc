#include "watch/rank_watch.hpp"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <ostream>

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

std::string heartbeat_file(const std::string& folder, int round, int local_rank) {
  return folder + "/heartbeats_" + std::to_string(round) + "/" + std::to_string(local_rank);
}

RankWatch::RankWatch(const std::string& folder, const Assignment& place, int ranks, const std::string& node,
                     const WatchOptions& options)
    : first_rank_(place.first_rank),
      node_(node),
      options_(options),
      next_look_(Clock::now() + kInterval),
      next_notice_(options.notice_after) {
  for (int rank = 0; rank < ranks; ++rank) {
    files_.push_back(heartbeat_file(folder, place.round, rank));
    std::error_code ignored;  // The file says it better.
    std::filesystem::create_directories(std::filesystem::path(files_.back()).parent_path(), ignored);
    make_heartbeat_file(files_.back());
  }
}

RankWatch::~RankWatch() {
  for (const auto& file : files_) {
    unlink(file.c_str());
    unlink(stacks_file(file).c_str());
  }
}

void RankWatch::add_to(Environment& environment, int local_rank) const {
  environment["LOCKSTEP_HEARTBEAT_FILE"] = file(local_rank);
}

std::vector<StackTarget> RankWatch::stack_targets(const std::vector<Worker>& workers) const {
  std::vector<StackTarget> targets;
  for (const auto& worker : workers) {
    if (!worker.status)
      targets.push_back({first_rank_ + worker.local_rank, worker.pid, file(worker.local_rank)});
  }
  return targets;
}

std::vector<RankView> RankWatch::views(const std::vector<Worker>& workers) const {
  std::vector<RankView> result;
  for (const auto& worker : workers) {
    RankView view;
    view.rank = first_rank_ + worker.local_rank;
    view.place = (node_.empty() ? "" : node_ + ", ") + "pid " + std::to_string(worker.pid);
    view.beat = read_heartbeat(file(worker.local_rank));
    if (view.beat) view.still = since(view.beat->beat_time);
    view.status = worker.status;
    result.push_back(std::move(view));
  }
  return result;
}

std::optional<Standstill> RankWatch::look(const std::vector<Worker>& workers, std::ostream& log) {
  next_look_ = Clock::now() + kInterval;
  const auto now = views(workers);
  const bool times_out = options_.timeout.count() > 0 && !ended_;
  if (auto ending = times_out ? standstill(now, options_.timeout) : std::nullopt) {
    ended_ = true;
    return ending;
  }
  const auto found = standstill(now, next_notice_);
  if (found && found->somebody_waits) {
    tell(*found, log);
  } else if (!standstill(now, options_.notice_after)) {
    next_notice_ = options_.notice_after;
  }
  return std::nullopt;
}

std::optional<Standstill> RankWatch::standstill(const std::vector<RankView>& now, milliseconds limit) const {
  auto found = find_standstill(now, limit);
  return found && (options_.sees_all_ranks || found->is_certain) ? found : std::nullopt;
}

void RankWatch::tell(const Standstill& standstill, std::ostream& log) {
  next_notice_ *= 2;
  log << "lockstep run: the job stands still: " + standstill.text + ". 'lockstep stacks " +
             std::to_string(getpid()) + "' shows where in the program\n"
      << std::flush;
}

std::optional<std::uint64_t> RankWatch::best_step() const {
  std::optional<std::uint64_t> best;
  for (const auto& file : files_) {
    const auto record = read_heartbeat(file);
    if (record) best = std::max(best.value_or(0), record->step);
  }
  return best;
}

}  // namespace lockstep::launch
