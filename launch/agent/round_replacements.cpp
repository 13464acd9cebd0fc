// How lost ranks of a round get another process: one that is started, or a spare that waits.

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "agent/round.hpp"
#include "core/elastic/recovery_messages.hpp"
#include "core/file_system.hpp"
#include "core/runtime/heartbeat_file.hpp"
#include "process/affinity.hpp"

namespace lockstep::launch {

WorkerSpec Round::spec_of(const Worker& worker) const {
  return for_process(spec_, worker.local_rank, worker.process);
}

void Round::spawn(Worker& worker, const std::string& heartbeat_file, const std::string& replaces) {
  const int rank = worker.local_rank;
  const WorkerSpec spec = spec_of(worker);
  file_system::make_folders(rank_folder(spec, rank));
  const ScopedBinding bound(config_.bindings.empty() ? CpuBinding{}
                                                     : config_.bindings[static_cast<std::size_t>(rank)]);
  Environment environment = worker_environment(config_, spec, rank, environment_);
  environment["LOCKSTEP_HEARTBEAT_FILE"] = heartbeat_file;
  if (!replaces.empty()) environment[elastic::kReplacesVariable] = replaces;
  const WorkerOutput output = open_output(config_, spec, rank, forwarder_);
  spawned_.emplace(worker_command(config_, rank), environment, [&] {
    output.apply();
    supervisor_.signals.restore_in_child();
  });
  worker.pid = spawned_->pid();
  supervisor_.reaper.guard(worker.pid);
}

Worker& Round::starting() { return starts_spare_ ? spares_.back() : workers_[starting_]; }

void Round::end_unstarted(Worker& worker, int status) {
  worker.status = status;
  if (!starts_spare_) ended_.push_back(static_cast<std::size_t>(&worker - workers_.data()));
}

std::vector<RankEnded> Round::take_ended() {
  std::vector<RankEnded> result;
  const auto kills = new_oom_kills();
  const auto add = [&](const Worker& worker, bool is_spare) {
    result.push_back({.round = spec_.assignment.round,
                      .process = worker.process,
                      .failure = record(worker, kills),
                      .is_spare = is_spare});
  };
  for (const std::size_t rank : std::exchange(ended_, {})) {
    undecided_.insert(rank);
    add(workers_[rank], false);
  }
  for (auto next = spares_.begin(); next != spares_.end();) {
    const auto spare = next++;
    if (!spare->status || (spawned_ && spawned_->pid() == spare->pid)) continue;
    add(*spare, true);
    ended_spares_.emplace(spare->local_rank, spare->process);
    monitor_->remove_file_of_spare(spare->local_rank, spare->process);
    forwarder_.forget(spare->local_rank, spare->process);
    spares_.erase(spare);
  }
  return result;
}

void Round::leave_ended(int rank) {
  undecided_.erase(static_cast<std::size_t>(rank - spec_.assignment.first_rank));
}

void Round::replace(const ReplaceRank& rank) { replacements_.push_back(rank); }

bool Round::is_replacing() const {
  return std::ranges::any_of(replacements_, [](const ReplaceRank& next) { return !next.is_spare; });
}

void Round::start_replacements() {
  while (!is_starting() && !replacements_.empty()) {
    const ReplaceRank next = replacements_.front();
    replacements_.erase(replacements_.begin());
    if (next.is_spare) {
      start_spare(next);
      continue;
    }
    if (call_spare(next)) continue;
    const auto index = static_cast<std::size_t>(next.rank - spec_.assignment.first_rank);
    clear_place(index);
    undecided_.erase(index);
    Worker& worker = workers_.at(index);
    worker = {.local_rank = worker.local_rank, .process = next.process};
    starting_ = index;
    starts_spare_ = false;
    try {
      monitor_->renew_file(worker.local_rank);
      spawn(worker, monitor_->file(worker.local_rank), next.replaces);
    } catch (const std::exception& error) {
      forwarder_.console().say("rank {} cannot be started again: {}", next.rank, error.what());
      end_unstarted(worker, 1 << 8);
      return;
    }
  }
}

void Round::start_spare(const ReplaceRank& rank) {
  Worker& spare = spares_.emplace_back();
  spare.local_rank = rank.rank - spec_.assignment.first_rank;
  spare.process = rank.process;
  starts_spare_ = true;
  try {
    const std::string file = monitor_->file_of_spare(spare.local_rank, spare.process);
    make_heartbeat_file(file);
    spawn(spare, file, rank.replaces);
  } catch (const std::exception& error) {
    forwarder_.console().say("the spare of rank {} cannot be started: {}", rank.rank, error.what());
    end_unstarted(spare, 1 << 8);
  }
}

bool Round::call_spare(const ReplaceRank& rank) {
  const auto index = static_cast<std::size_t>(rank.rank - spec_.assignment.first_rank);
  const int local_rank = workers_.at(index).local_rank;
  if (ended_spares_.contains({local_rank, rank.process})) return true;
  const auto spare = std::ranges::find_if(spares_, [&](const Worker& worker) {
    return worker.local_rank == local_rank && worker.process == rank.process;
  });
  if (spare == spares_.end()) return false;
  clear_place(index);
  undecided_.erase(index);
  monitor_->use_file_of_spare(local_rank, spare->process);
  workers_[index] = *spare;
  spares_.erase(spare);
  if (workers_[index].status) ended_.push_back(index);
  return true;
}

void Round::clear_place(std::size_t index) {
  const Worker& worker = workers_.at(index);
  if (worker.left_processes) {
    if (!config_.options.keep_daemons) killpg(worker.pid, SIGKILL);
    replaced_.push_back(worker.pid);
  }
  if (first_failure_ == index) first_failure_.reset();
  forwarder_.forget(worker.local_rank, worker.process);
}

void Round::kill_rank(const KillRank& rank) {
  const auto kill = [&](Worker& worker) {
    if (worker.process != rank.process || worker.status || worker.pid <= 0) return;
    worker.killed = true;
    killpg(worker.pid, SIGKILL);
  };
  const int local_rank = rank.rank - spec_.assignment.first_rank;
  std::erase_if(replacements_, [&](const ReplaceRank& next) {
    return next.is_spare && next.rank == rank.rank && next.process == rank.process;
  });
  kill(workers_.at(static_cast<std::size_t>(local_rank)));
  for (auto& spare : spares_) {
    if (spare.local_rank == local_rank) kill(spare);
  }
}

void Round::kill_spares() {
  std::erase_if(replacements_, [](const ReplaceRank& next) { return next.is_spare; });
  for (auto& spare : spares_) {
    if (spare.status || spare.pid <= 0) continue;
    spare.killed = true;
    killpg(spare.pid, SIGKILL);
  }
}

}  // namespace lockstep::launch
