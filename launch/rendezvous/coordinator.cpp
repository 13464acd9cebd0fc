#include "rendezvous/coordinator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "core/time.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "process/words.hpp"

namespace lockstep::launch {
namespace {

/// Sends keep-alives, and is awaited at the end of the job.
bool is_remote_launcher(const Node& node) { return node.id != 0 && !node.info.is_torchrun; }

/// Hangs are not checked more often, however many nodes report.
constexpr std::chrono::seconds kLookInterval{1};
/// The most stacks that other nodes may send for one request, so that the connection is not flooded.
constexpr std::size_t kMostStacks = 2 << 20;

bool reports(const Node& node) { return node.active && !node.info.is_torchrun; }

}  // namespace

Coordinator::Coordinator(CoordinatorOptions options, CoordinatorActions& actions, Time now)
    : options_(std::move(options)),
      actions_(actions),
      restarts_(options_.max_restarts, options_.restart_backoff),
      round_started_(now),
      hang_detector_(HangOptions()),
      next_look_(now),
      gathering_since_(now),
      next_notice_(now + kNoticeInterval) {}

Node* Coordinator::find(NodeId id) {
  const auto found = places_.find(id);
  return found == places_.end() ? nullptr : &nodes_[found->second];
}

void Coordinator::erase(NodeId id) {
  std::erase_if(nodes_, [&](const Node& node) { return node.id == id; });
  places_.clear();
  for (std::size_t place = 0; place < nodes_.size(); ++place) places_[nodes_[place].id] = place;
}

void Coordinator::on_message(NodeId id, const NodeMessage& message, Time now) {
  Node* node = find(id);
  if (node == nullptr) return;
  node->last_message_time = now;
  std::visit(Overloaded{[&](const Ping&) { actions_.send(id, Pong{}); },
                        [&](const Draining& draining) { on_draining(*node, draining.signal, now); },
                        [&](const StacksRequest&) { collect_stacks(*node); },
                        [&](const Stacks& stacks) { pass_on_stacks(*node, stacks); },
                        [&](const RankFailed& failed) {
                          if (is_current(*node, failed.round)) on_rank_failed(*node, failed);
                        },
                        [&](const RankEnded& ended) {
                          if (is_current(*node, ended.round)) on_rank_ended(*node, ended, now);
                        },
                        [&](const RoundEnded& ended) {
                          if (is_current(*node, ended.round)) on_round_ended(*node, ended, now);
                        },
                        [&](const StatusReport& report) {
                          if (is_current(*node, report.round)) on_status(*node, report, now);
                        },
                        [](const NodeInfo&) {}, [](const PeerUidAnswer&) {}},
             message);
}

bool Coordinator::is_current(const Node& node, int round) const {
  return phase_ != Phase::finishing && node.active && round == round_;
}

void Coordinator::keep_failure(ProcessFailure failure) {
  name_hang(failure);
  const auto known = std::ranges::find(failures_, failure.rank, &ProcessFailure::rank);
  if (known == failures_.end()) {
    failures_.push_back(failure);
  } else if (failure.failed() || !known->failed()) {
    // Otherwise it is about the process that replaces the failed one.
    *known = failure;
  }
}

void Coordinator::on_rank_failed(const Node& node, const RankFailed& failed) {
  // While ranks are stopped for another reason, their failures do not count.
  if (phase_ == Phase::stopping && reason_ != Reason::failure && reason_ != Reason::node_lost) return;
  keep_failure(failed.failure);
  if (phase_ != Phase::running) return;
  if (nodes_.size() > 1) notify("a rank failed on " + node.text() + ": stopping all ranks");
  stop(Reason::failure, SIGTERM);
}

void Coordinator::on_round_ended(Node& node, const RoundEnded& ended, Time now) {
  if (ended.step) best_step_ = std::max(best_step_.value_or(0), *ended.step);
  for (const auto& failure : ended.failures) keep_failure(failure);
  node.ended = true;
  if (node.drain_signal != 0 && reason_ != Reason::end) release(node);
  // If ranks save their state and exit, the others get the time to do the same.
  preempted_ = preempted_ || ended.preempted;
  in_order_ = in_order_ && (ended.ok || ended.preempted);
  if (!ended.ok && !ended.preempted && phase_ == Phase::running) stop(Reason::failure, SIGTERM);
  check_all_ended(now);
}

void Coordinator::release(const Node& node) { actions_.send(node.id, Finish{128 + node.drain_signal, {}}); }

void Coordinator::on_disconnect(NodeId id, const std::string& how, Time now) {
  const Node* node = find(id);
  if (node == nullptr) return;
  // Once a node's ranks have ended, its launcher is not needed.
  // One that was asked to end is expected to leave, except while the others go on.
  const bool expected = node->drain_signal != 0 && phase_ != Phase::running;
  const bool counts = node->running() && phase_ != Phase::finishing && !expected;
  const Node lost = *node;
  erase(id);
  if (counts) {
    const std::string text = lost.text() + " " + how;
    notify(text);
    if (!recover_node(lost, how, now)) {
      losses_ += (losses_.empty() ? "" : "\n") + text;
      stop(Reason::node_lost, SIGTERM);
    }
  }
  check_all_ended(now);
  if (phase_ == Phase::gathering) try_start(now);
}

void Coordinator::stop(Reason reason, int signal) {
  if (phase_ == Phase::gathering || phase_ == Phase::finishing) return;
  if (recovery_) recovery_->stop("the ranks are being stopped");
  const bool first = phase_ == Phase::running;
  if (!first && reason < reason_) return;
  const bool worse = !first && reason > reason_;
  reason_ = reason;
  phase_ = Phase::stopping;
  for (auto& node : nodes_) node.ended = node.ended || node.info.is_torchrun;
  if (!first && !worse && reason != Reason::end) return;
  const bool failed = reason == Reason::failure;
  // Ranks that have lost others cannot agree on a state to save.
  broadcast(StopRound{.round = round_,
                      .signal = signal,
                      .at_once = failed || reason == Reason::node_lost,
                      .stacks_first = failed && std::ranges::any_of(failures_, &ProcessFailure::timed_out)});
}

void Coordinator::check_all_ended(Time now) {
  if (phase_ != Phase::running && phase_ != Phase::stopping) return;
  if (std::ranges::any_of(nodes_, &Node::running)) return wait_for_torchrun(now);
  if (preempted_ && in_order_ && (phase_ == Phase::running || reason_ == Reason::end)) {
    notify(
        "preempted: the ranks were asked to stop and have saved their state (exit code {}); start the job "
        "again to continue",
        kPreemptedExitCode);
    finish(kPreemptedExitCode, nullptr, now);
  } else if (phase_ == Phase::running && preempted_) {
    after_failure(now);
  } else if (phase_ == Phase::running) {
    finish(0, nullptr, now);
  } else {
    after_round(now);
  }
}

void Coordinator::wait_for_torchrun(Time now) {
  const bool others =
      std::ranges::any_of(nodes_, [](const Node& node) { return node.running() && !node.info.is_torchrun; });
  if (!others) torchrun_deadline_ = std::min(torchrun_deadline_, now + options_.exit_barrier_timeout);
}

void Coordinator::on_torchrun_lost(Time now) {
  std::vector<std::string> lost;
  for (const auto& node : nodes_) {
    if (node.running()) lost.push_back(node.text());
  }
  fail(fmt::format("{} left the job's store without having succeeded: look at the log of torchrun there",
                   fmt::join(lost, ", ")),
       now);
}

void Coordinator::after_round(Time now) {
  switch (reason_) {
    case Reason::membership:
      return gather(now);
    case Reason::failure:
      return after_failure(now);
    case Reason::node_lost:
      return after_loss(now);
    case Reason::end:
      return end_by(end_signal_, now);
  }
}

void Coordinator::after_failure(Time now) {
  const FailureSummary summary = options_.analyze(failures_);
  // The full report is printed once, on the coordinator's own node; the others name the cause.
  for (const auto& node : nodes_)
    actions_.send(node.id, Report{node.id == 0 ? summary.report : summary.headline});
  if (summary.preempted || has_torchrun_nodes() || !restart(now))
    finish(summary.exit_code, summary.error, now);
}

void Coordinator::after_loss(Time now) {
  FailureSummary summary;
  if (!failures_.empty()) summary = options_.analyze(failures_);
  // A rank that failed by itself is the cause, even if its node was lost afterwards.
  if (summary.has_own_cause) return after_failure(now);
  const bool can_restart = !has_torchrun_nodes();
  if (can_restart && staying() >= options_.min_nodes) {
    pause_for(restarts_.pause_after(lived(now)), "the job continues without it", now);
    return gather(now);
  }
  report("lockstep run: FAILED: " + losses_ + "\n");
  if (!can_restart || !restart(now))
    finish(1, summary.error.is_null() ? nlohmann::json(losses_) : summary.error, now);
}

bool Coordinator::has_torchrun_nodes() const {
  return std::ranges::any_of(nodes_, [](const Node& node) { return node.info.is_torchrun; });
}

/// Starts the next round, if the policy allows one.
bool Coordinator::restart(Time now) {
  const auto decision = restarts_.after(lived(now), best_step_);
  if (!decision.reason.empty()) notify(decision.reason);
  if (!decision.again) return false;
  pause_for(decision.pause, fmt::format("restart {} of {}", restarts_.used(), options_.max_restarts), now);
  gather(now);
  return true;
}

/// Delays the next round, and tells the user `what` comes then.
void Coordinator::pause_for(std::chrono::milliseconds pause, const std::string& what, Time now) {
  pause_end_ = now + pause;
  notify(what + (pause.count() == 0 ? "" : ", after a pause of " + format_seconds(pause)));
}

std::chrono::milliseconds Coordinator::lived(Time now) const {
  return std::chrono::duration_cast<std::chrono::milliseconds>(now - round_started_);
}

void Coordinator::on_status(Node& node, const StatusReport& report, Time now) {
  node.ranks = report.ranks;
  node.reported = now;
  if (phase_ == Phase::running && now >= next_look_) detect_hangs(now);
}

/// All ranks of the job at the time of the oldest report, so that all stood still together for as long as
/// their status says; empty if a node has not reported yet. Times are the coordinator's: clocks of different
/// hosts are not compared.
std::vector<RankStatus> Coordinator::all_ranks() const {
  Time oldest = Time::max();
  for (const auto& node : nodes_) {
    if (!reports(node)) continue;
    if (node.ranks.empty()) return {};
    if (!node.ended) oldest = std::min(oldest, node.reported);
  }
  std::vector<RankStatus> all;
  for (const auto& node : nodes_) {
    if (!reports(node)) continue;
    for (RankStatus rank : node.ranks) {
      if (!node.ended)
        rank.still -= std::chrono::duration_cast<std::chrono::milliseconds>(node.reported - oldest);
      all.push_back(std::move(rank));
    }
  }
  return all;
}

void Coordinator::detect_hangs(Time now) {
  const auto ranks = all_ranks();
  if (ranks.empty()) return;
  next_look_ = now + kLookInterval;
  const auto found = hang_detector_.look(ranks);
  if (!found) return;
  const auto rank = choose_hung_rank(found->hang, ranks);
  const bool is_known = rank && std::ranges::count(found->hang.stuck, *rank) > 0;
  if (found->ends_job && is_known && recovery_ &&
      recovery_->on_hang(*rank, found->hang.text,
                         !is_held(*std::ranges::find(ranks, *rank, &RankStatus::rank)), now))
    return;
  broadcast(HangFound{.round = round_,
                      .text = found->hang.text,
                      .ends_job = found->ends_job,
                      .limit = options_.heartbeat_timeout,
                      .rank = rank,
                      .stuck = found->hang.stuck});
}

/// The rank whose failure the hang becomes: a stuck one if its node still runs, otherwise the first one that
/// runs.
std::optional<int> Coordinator::choose_hung_rank(const Hang& hang,
                                                 const std::vector<RankStatus>& ranks) const {
  for (const int rank : hang.stuck) {
    for (const auto& node : nodes_) {
      if (node.running() && std::ranges::count(node.ranks, rank, &RankStatus::rank) > 0) return rank;
    }
  }
  const auto running = std::ranges::find_if(ranks, [](const RankStatus& rank) { return !rank.status; });
  return running == ranks.end() ? std::nullopt : std::optional(running->rank);
}

void Coordinator::collect_stacks(Node& requester) {
  requester.stacks_passed = 0;
  for (const auto& node : nodes_) {
    if (node.id != requester.id && node.running()) actions_.send(node.id, CollectStacks{requester.id});
  }
}

void Coordinator::pass_on_stacks(const Node& from, const Stacks& stacks) {
  Node* requester = find(stacks.requester);
  if (requester == nullptr) return;
  if (requester->stacks_passed + stacks.text.size() > kMostStacks) {
    actions_.send(
        requester->id,
        Notice{fmt::format(
            "the stacks of {} are left out, as they are too long: request them from its own launcher",
            from.text())});
  } else {
    requester->stacks_passed += stacks.text.size();
    actions_.send(requester->id, Report{stacks.text});
  }
}

void Coordinator::gather(Time now) {
  phase_ = Phase::gathering;
  reason_ = Reason::membership;
  // The timeout starts after the pause.
  gathering_since_ = pause_end_.value_or(now);
  next_notice_ = gathering_since_ + kNoticeInterval;
  for (auto& node : nodes_) node.active = node.ended = false;
  try_start(now);
}

void Coordinator::try_start(Time now) {
  if (pause_end_ && now < *pause_end_) return;
  pause_end_.reset();
  const int count = std::min(staying(), options_.max_nodes);
  if (count < options_.min_nodes) {
    last_call_ = Time::max();
  } else if (count == options_.max_nodes || round_ > 0 || now >= last_call_) {
    start(candidates(nodes_, options_.max_nodes), now);
  } else {
    last_call_ = std::min(last_call_, now + options_.last_call_timeout);
  }
}

void Coordinator::start(const std::vector<Node*>& order, Time now) {
  auto assignments = assign_ranks(order);
  ++round_;
  phase_ = Phase::running;
  round_started_ = now;
  best_step_.reset();
  last_call_ = torchrun_deadline_ = Time::max();
  failures_.clear();
  lost_.clear();
  losses_.clear();
  preempted_ = false;
  in_order_ = true;
  hang_detector_ = HangDetector({.timeout = options_.heartbeat_timeout,
                                 .sees_all_ranks = options_.sees_all_ranks && !has_torchrun_nodes()});
  actions_.begin_round(round_);
  begin_recovery(order, now);
  if (order.size() > 1)
    notify(nodes_text(static_cast<int>(order.size())) + ": " + rank_map(order, assignments));
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i]->group_rank = assignments[i].group_rank;
    order[i]->active = true;
    order[i]->ended = false;
    order[i]->ranks.clear();
    assignments[i].round = round_;
    assignments[i].restart_count = restarts_.used();
    assignments[i].max_restarts = options_.max_restarts;
    assignments[i].own_store = order.front()->info.own_store;
    assignments[i].max_recoveries = recovery_ ? options_.recovery.max_recoveries : 0;
    actions_.send(order[i]->id, assignments[i]);
  }
  assignments_ = std::move(assignments);
}

void Coordinator::finish(int exit_code, const nlohmann::json& error, Time now) {
  phase_ = Phase::finishing;
  close_deadline_ = now + options_.close_timeout;
  for (const auto& node : nodes_) {
    const bool never_ran = !node.group_rank && round_ > 0;
    if (never_ran)
      actions_.send(node.id, Report{"lockstep run: FAILED: no rank of this node ran: the job had its " +
                                    nodes_text(options_.max_nodes) + " and has ended without it\n"});
    actions_.send(node.id, Finish{never_ran && exit_code == 0 ? 1 : exit_code, error});
  }
}

void Coordinator::fail(const std::string& why, Time now) {
  report("lockstep run: FAILED: " + why + "\n");
  finish(1, why, now);
}

void Coordinator::end_by(int signal, Time now) {
  finish(128 + signal, "the job was asked to end by " + signal_name(signal), now);
}

void Coordinator::drop_silent_nodes(Time now) {
  std::vector<NodeId> silent;
  for (const auto& node : nodes_) {
    if (is_remote_launcher(node) && now >= node.last_message_time + options_.keep_alive_timeout)
      silent.push_back(node.id);
  }
  for (const NodeId id : silent) {
    actions_.dismiss(id);
    on_disconnect(id,
                  fmt::format("sent no keep-alive for {}: its launcher or its network is dead",
                              format_seconds(options_.keep_alive_timeout)),
                  now);
  }
}

void Coordinator::on_timer(Time now) {
  drop_silent_nodes(now);
  if (phase_ == Phase::running && recovery_) {
    recovery_->on_timer(now);
    stop_if_given_up();
  }
  if (relieved_ && now >= relieved_->at) relieve(now);
  if (now >= close_deadline_) {
    for (const auto& node : nodes_) actions_.dismiss(node.id);
    nodes_.clear();
    places_.clear();
    close_deadline_ = Time::max();
  }
  if (phase_ == Phase::running && now >= torchrun_deadline_) {
    fail(fmt::format("torchrun's agents have not ended {} after all other nodes have: look at their logs",
                     format_seconds(options_.exit_barrier_timeout)),
         now);
  }
  if (phase_ != Phase::gathering) return;
  try_start(now);
  if (phase_ != Phase::gathering) return;
  if (staying() < options_.min_nodes && now >= gathering_since_ + options_.join_timeout) {
    fail(fmt::format("after {} {} ({}){}", format_seconds(options_.join_timeout), awaited(),
                     options_.join_timeout_option, refused()),
         now);
  } else if (now >= next_notice_) {
    if (staying() < options_.min_nodes) notify(awaited());
    next_notice_ = now + kNoticeInterval;
  }
}

Coordinator::Time Coordinator::deadline() const {
  Time next = close_deadline_;
  for (const auto& node : nodes_) {
    if (is_remote_launcher(node)) next = std::min(next, node.last_message_time + options_.keep_alive_timeout);
  }
  if (relieved_) next = std::min(next, relieved_->at);
  if (phase_ == Phase::running) next = std::min(next, torchrun_deadline_);
  if (phase_ == Phase::running && recovery_) next = std::min(next, recovery_->deadline());
  if (phase_ != Phase::gathering) return next;
  if (staying() < options_.min_nodes) next = std::min(next, gathering_since_ + options_.join_timeout);
  return std::min({next, next_notice_, last_call_, pause_end_.value_or(Time::max())});
}

bool Coordinator::finished() const {
  return phase_ == Phase::finishing && std::ranges::none_of(nodes_, is_remote_launcher);
}

void Coordinator::broadcast(const CoordinatorMessage& message) {
  for (const auto& node : nodes_) actions_.send(node.id, message);
}

}  // namespace lockstep::launch
