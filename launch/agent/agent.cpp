#include "agent/agent.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <filesystem>
#include <ranges>
#include <utility>

#include "core/host_name.hpp"
#include "core/time.hpp"
#include "failure/error_file.hpp"
#include "lockstep/core/error.hpp"
#include "net/socket.hpp"
#include "process/words.hpp"

namespace lockstep::launch {
namespace {

/// How long a node that ends, and whose ranks have ended, waits for the coordinator's answer.
constexpr std::chrono::seconds kFinishAckTime{5};

/// The address of the ranks' own store on rank 0, if the user has disabled the launcher's store as in
/// torchrun (whose c10d rendezvous is the only one that supports it).
std::optional<net::HostPort> own_store(const LaunchConfig& config, const Environment& environment) {
  const auto off = find_variable(environment, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE");
  if (off != "1" || config.backend_name != "c10d") return std::nullopt;
  const std::string host = config.max_nodes == 1 ? config.endpoint.host : host_name();
  return net::HostPort{config.options.local_addr.value_or(host), net::free_port()};
}

NodeInfo this_node(const LaunchConfig& config, const Environment& environment) {
  return {.run_id = config.run_id,
          .host = host_name(),
          .pid = getpid(),
          .node_rank = config.node_rank,
          .min_nodes = config.min_nodes,
          .max_nodes = config.max_nodes,
          .local_world_size = config.local_world_size,
          .role = config.options.role,
          // The folder may differ between nodes.
          .program = std::filesystem::path(config.program).filename(),
          .arguments = fmt::format("{}", fmt::join(config.options.program | std::views::drop(1), " ")),
          .own_store = own_store(config, environment)};
}

}  // namespace

Agent::Agent(const LaunchConfig& config, const Environment& environment, ProcessSupervisor& supervisor,
             CoordinatorClient& coordinator, Console& console, JobMetrics* metrics)
    : config_(config),
      environment_(environment),
      supervisor_(supervisor),
      coordinator_(coordinator),
      console_(console),
      metrics_(metrics),
      forwarder_(console),
      events_(config, console) {}

int Agent::run() {
  const std::string notice = thread_notice(config_, environment_);
  if (!notice.empty()) console_.say(notice);
  if (!config_.log_dir.empty()) console_.say("log files are in " + config_.log_dir);
  send(this_node(config_, environment_));
  while (!exit_code_) {
    if (next_) {
      run_round(*std::exchange(next_, std::nullopt));
    } else {
      wait_for_event();
    }
  }
  // The coordinator's own node stays until all others have left.
  while (!coordinator_.finished() && !force_kill_) wait_for_event();
  events_.finished(end_signal_);
  pass_on_cause();
  return *exit_code_;
}

void Agent::run_round(const Assignment& assignment) {
  events_.rendezvous_completed();
  shutdown_deadline_ = net::Deadline::max();
  const bool again = spec_.assignment.round > 0 && spec_.assignment.restart_count == assignment.restart_count;
  spec_ = {.assignment = assignment,
           .repeat = again ? spec_.repeat + 1 : 0,
           .master = assignment.own_store.value_or(coordinator_.master()),
           .folder = config_.log_dir.empty() ? supervisor_.reaper.folder() : config_.log_dir};
  if (metrics_ != nullptr) metrics_->begin_round(assignment, config_.local_world_size);
  round_.emplace(config_, environment_, spec_, supervisor_, forwarder_);
  if (!start_ranks()) return;
  if (end_signal_ != 0) round_->stop(end_signal_);
  while (round_->ranks_run()) {
    wait_for_event();
    round_->start_replacements();
    report_ended_ranks();
  }
  round_->kill_spares();
  // The ranks' output is shown before anything is reported about their end.
  forwarder_.flush();
  held_stop_.reset();
  held_kill_.reset();
  stacks_first_ = false;
  traces_.reset();
  if (const auto stacks = stacks_.finish()) pass_on_stacks(*stacks);
  while (round_->end_orphans()) wait_for_event();
  forwarder_.finish();
  events_.ended(round_->workers());
  report_end();
  round_.reset();
  if (force_kill_ && !exit_code_) exit_code_ = 128 + end_signal_;
  if (end_signal_ != 0) shutdown_deadline_ = net::Clock::now() + config_.shutdown_timeout + kFinishAckTime;
}

bool Agent::start_ranks() {
  try {
    round_->prepare();
    // Keep-alives to the coordinator continue while many ranks start. Signals wait: if a rank fails or is
    // stopped, all others have been started.
    while (round_->start_next()) {
      // If exec hangs, everything else continues meanwhile.
      while (round_->is_starting()) wait_for_event();
      poll_coordinator(net::Clock::now());
    }
    events_.started(spec_, round_->workers());
    return true;
  } catch (const std::exception& error) {
    if (config_.max_nodes == 1) throw;
    const ProcessFailure record = round_->not_started(error);
    round_.reset();
    forwarder_.finish();
    send(RoundEnded{.round = spec_.assignment.round, .failures = {record}});
    return false;
  }
}

void Agent::wait_for_event() {
  const auto next = std::min({coordinator_.deadline(), stacks_.deadline(),
                              traces_ ? traces_->deadline() : net::Deadline::max(),
                              round_ ? round_->deadline() : net::Deadline::max(), shutdown_deadline_});
  const int signal_number = supervisor_.signals.wait(
      next, {forwarder_.descriptor(), coordinator_.descriptor(), round_ ? round_->start_descriptor() : -1});
  if (signal_number != 0) {
    on_signal(signal_number);
  } else {
    forwarder_.pump();
  }
  const auto now = net::Clock::now();
  on_deadlines(now);
  poll_coordinator(now);
}

void Agent::poll_coordinator(net::Deadline now) {
  for (const auto& message : coordinator_.work(now)) on_message(message);
}

void Agent::on_deadlines(net::Deadline now) {
  if (round_ && now >= round_->deadline()) {
    if (const auto ranks = round_->on_deadline(); !ranks.empty()) report_status(ranks);
  }
  if (const auto stacks = stacks_.work(now)) pass_on_stacks(*stacks);
  if (traces_ && now >= traces_->deadline() && (!round_ || traces_->is_over(round_->statuses(), now))) {
    traces_.reset();
    run_held_stop();
  }
  if (now < shutdown_deadline_) return;
  shutdown_deadline_ = net::Deadline::max();
  if (!exit_code_) exit_code_ = 128 + end_signal_;
}

void Agent::on_signal(int number) {
  if (number == SIGCHLD) {
    on_child_ended();
  } else if (supervisor_.signals.ends_job(number)) {
    on_end_signal(number);
  } else if (number == stacks_request()) {
    ask_for_stacks(std::nullopt);
    send(StacksRequest{});
  } else if (round_) {
    round_->pass_on(number);
  }
}

void Agent::on_end_signal(int number) {
  if (end_signal_ != 0) {
    console_.say("received {} again: {}", signal_name(number),
                 round_ ? "killing the ranks" : "exiting at once");
    force_kill_ = true;
    if (round_) {
      round_->kill();
    } else if (!exit_code_) {
      exit_code_ = 128 + end_signal_;
    }
    return;
  }
  end_signal_ = number;
  if (round_ && may_be_relieved()) {
    console_.say(
        "received {} and told the coordinator, which stops the ranks or lets another node replace them",
        signal_name(number));
  } else if (round_) {
    console_.say("received {} and forwarded it to the ranks, which have {} to end", signal_name(number),
                 format_seconds(config_.shutdown_timeout));
    round_->stop(number);
  } else {
    shutdown_deadline_ = net::Clock::now() + kFinishAckTime;
  }
  send(Draining{number});
}

void Agent::on_child_ended() {
  if (!round_) return;
  const bool is_first_failure = round_->reap();
  if (replaces_ranks()) return report_ended_ranks();
  if (!is_first_failure) return;
  const ProcessFailure failure = round_->first_failure();
  send(RankFailed{spec_.assignment.round, failure});
  if (round_->is_stopping()) return round_->stop_at_once();
  if (failure.timed_out()) return stop_after_stacks();  // The ranks that it waited for still run.
  stop_after_traces();
}

/// The coordinator decides what becomes of them.
void Agent::report_ended_ranks() {
  if (!round_ || !replaces_ranks()) return;
  for (const auto& ended : round_->take_ended()) send(ended);
}

void Agent::on_replace(const ReplaceRank& replace) {
  if (!round_ || replace.round != spec_.assignment.round || round_->is_stopping()) return;
  round_->replace(replace);
  if (!replace.is_spare && metrics_ != nullptr) metrics_->count_recovery();
}

void Agent::on_not_replaced(const NotReplaced& end) {
  if (round_ && end.round == spec_.assignment.round) round_->leave_ended(end.rank);
}

void Agent::on_kill(const KillRank& kill) {
  if (!round_ || kill.round != spec_.assignment.round) return;
  if (!kill.stacks_first || round_->is_stopping()) return round_->kill_rank(kill);
  run_held_kill();
  held_kill_ = kill;
  ask_for_stacks(std::nullopt);
}

void Agent::run_held_kill() {
  const auto kill = std::exchange(held_kill_, std::nullopt);
  if (kill && round_) round_->kill_rank(*kill);
}

void Agent::on_message(const CoordinatorMessage& message) {
  std::visit(
      Overloaded{[&](const Assignment& assignment) { next_ = assignment; },
                 [&](const StopRound& stop) { on_stop(stop); },
                 [&](const ReplaceRank& replace) { on_replace(replace); },
                 [&](const NotReplaced& end) { on_not_replaced(end); },
                 [&](const KillRank& kill) { on_kill(kill); }, [&](const HangFound& hang) { on_hang(hang); },
                 [&](const CollectStacks& stacks) { ask_for_stacks(stacks.requester); },
                 [&](const Notice& notice) { console_.say(notice.text); },
                 [&](const Report& report) { console_.print(report.text); },
                 [&](const Finish& finish) { on_finish(finish); },
                 [&](const Reject& reject) { on_lost("this node cannot join the job: " + reject.text); },
                 [&](const CoordinatorLost& lost) { on_lost(lost.text); }, [](const Pong&) {},
                 [](const VerifyPeerUid&) {}},
      message);
}

void Agent::on_stop(const StopRound& stop) {
  if (next_ && next_->round == stop.round) {
    // Start and stop arrived together: nothing to stop yet.
    next_.reset();
    return send(RoundEnded{.round = stop.round, .ok = true});
  }
  if (!round_ || stop.round != spec_.assignment.round) return;
  if (stop.stacks_first && !stacks_first_ && !round_->is_stopping()) show_stacks_first();
  if (stop.at_once && !held_stop_ && !round_->is_stopping()) ask_for_traces();
  held_stop_ = stop;
  run_held_stop();
}

void Agent::run_held_stop() {
  if (holds_stop() || !round_) return;
  if (const auto stop = std::exchange(held_stop_, std::nullopt)) stop_ranks(*stop);
}

void Agent::ask_for_traces() {
  const auto folder = find_variable(environment_, "LOCKSTEP_TRACE_DIR");
  if (folder && !folder->empty()) traces_.emplace(*folder, round_->statuses(), net::Clock::now());
}

void Agent::stop_ranks(const StopRound& stop) {
  if (stop.at_once) {
    round_->stop_at_once();
  } else if (!round_->is_stopping()) {
    // Otherwise the ranks have their signal: this is the coordinator's answer to ours, and a second one would
    // kill.
    round_->stop(stop.signal);
  }
}

void Agent::on_hang(const HangFound& hang) {
  if (!round_ || hang.round != spec_.assignment.round || round_->is_stopping()) return;
  if (!hang.ends_job)
    return console_.say("the job hangs: {}. 'lockstep stacks {}' shows where in the program", hang.text,
                        getpid());
  const auto is_here = [this](int rank) { return round_->has_rank(rank); };
  if (hang.rank && is_here(*hang.rank) && round_->mark_hung(*hang.rank, hang.text)) {
    send(RankFailed{spec_.assignment.round, round_->first_failure()});
    console_.say("the job has hung for {} (--heartbeat-timeout): ending it", format_seconds(hang.limit));
    return stop_after_stacks();
  }
  // Another node ends the job; the stacks of these ranks are printed before they are stopped.
  if (hang.stuck.empty() || std::ranges::any_of(hang.stuck, is_here)) show_stacks_first();
}

void Agent::stop_after_stacks() {
  show_stacks_first();
  stop_after_traces();
}

void Agent::stop_after_traces() {
  ask_for_traces();
  held_stop_ = StopRound{.round = spec_.assignment.round, .signal = SIGTERM, .at_once = true};
  run_held_stop();
}

void Agent::show_stacks_first() {
  stacks_first_ = true;
  ask_for_stacks(std::nullopt);
}

void Agent::ask_for_stacks(std::optional<NodeId> node) {
  if (round_) stacks_.ask(round_->stack_targets(), environment_, node, net::Clock::now());
}

void Agent::pass_on_stacks(const StackDump::Answer& stacks) {
  if (stacks.here) console_.print(stacks.text);
  const std::string text = fmt::format("lockstep run: host {}:\n{}", host_name(), stacks.text);
  for (const auto node : stacks.nodes) send(Stacks{node, text});
  stacks_first_ = false;
  run_held_kill();
  run_held_stop();
}

void Agent::on_finish(const Finish& finish) {
  exit_code_ = finish.exit_code;
  error_ = finish.error;
  if (round_) round_->stop(SIGTERM);
}

void Agent::pass_on_cause() {
  if (*exit_code_ == 0) return;
  if (error_.is_null() && end_signal_ != 0 && *exit_code_ == 128 + end_signal_)
    error_ = "received " + signal_name(end_signal_);
  const std::string problem = pass_on_error(error_, environment_, *exit_code_);
  if (!problem.empty()) console_.say(problem);
}

void Agent::on_lost(const std::string& why) {
  if (exit_code_) return;
  console_.say("FAILED: " + why);
  error_ = why;
  exit_code_ = end_signal_ == 0 ? 1 : 128 + end_signal_;
  if (round_) round_->stop_at_once();
}

void Agent::send(const NodeMessage& message) { coordinator_.send(message, net::Clock::now()); }

void Agent::report_status(const std::vector<RankStatus>& ranks) {
  send(StatusReport{spec_.assignment.round, ranks});
  if (metrics_ != nullptr) metrics_->see(ranks, net::Clock::now());
}

void Agent::report_end() {
  if (metrics_ != nullptr) metrics_->see(round_->statuses(), net::Clock::now());
  // Others may wait for ranks that have exited.
  if (round_->succeeded()) send(StatusReport{spec_.assignment.round, round_->statuses()});
  RoundEnded ended{
      .round = spec_.assignment.round, .ok = round_->succeeded(), .preempted = round_->preempted()};
  ended.step = round_->best_step();
  if (!ended.ok) ended.failures = round_->records();
  send(ended);
}

}  // namespace lockstep::launch
