#include "rendezvous/round_recovery.hpp"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "core/time.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::launch {

using elastic::RankReport;

namespace {

/// A new process does what the first ones did before their training. It may take so many times as long as
/// the slowest of them, on a machine that is busier now, and --recovery-timeout.
constexpr int kLongestSetUp = 3;

}  // namespace

RoundRecovery::RoundRecovery(elastic::RecoveryOptions options, int round, std::vector<int> nodes,
                             Actions actions, Time now)
    : options_(options),
      round_(round),
      nodes_(std::move(nodes)),
      actions_(std::move(actions)),
      started_(now) {}

void RoundRecovery::on_report(const std::string& text, Time now) {
  if (is_over_) return;
  RankReport report;
  try {
    report = elastic::report_from(text);
  } catch (const DataError& error) {
    return actions_.say(error.what());
  }
  const auto ranks = static_cast<int>(nodes_.size());
  if (report.process.rank < 0 || report.process.rank >= ranks) return;
  // A process of a lost node, which lives on for a while: it is nobody's.
  if (report.process.process < process_of(report.process.rank)) return;
  if (!is_same_program(report)) return;
  switch (report.what) {
    case RankReport::What::begun:
      begun_.insert(report.process.rank);
      if (static_cast<int>(begun_.size()) < ranks || planner_) return;
      options_.replacement_timeout =
          options_.park_timeout +
          kLongestSetUp * std::chrono::duration_cast<std::chrono::milliseconds>(now - started_);
      planner_.emplace(options_, nodes_);
      for (const auto& rank : finished_) act(planner_->on_finished(1, rank), now);
      if (is_on()) act(planner_->start_spares(now), now);
      return;
    case RankReport::What::refused: {
      const std::string why = fmt::format("{} has an error that a new process would repeat: {}",
                                          elastic::describe(report.process), report.why);
      // The ranks train on, and nobody else would say it.
      if (report.generation == 0) actions_.say("lost ranks will not be replaced any more: " + why);
      return stop(why);
    }
    case RankReport::What::ready:
      if (planner_) planner_->on_spare_ready(report.process);
      return;
    case RankReport::What::suspect:
      if (planner_) act(planner_->on_suspect(report.generation, report.process, report.why, now), now);
      // Before all have begun, nobody can be the source of a state.
      else
        stop("not all ranks had begun their training");
      return;
    case RankReport::What::parked:
      if (planner_) act(planner_->on_parked(report.generation, report.process, report.held, now), now);
      return;
    case RankReport::What::finished:
      // A training may have nothing to do, and end on one rank before another has begun it.
      if (planner_)
        act(planner_->on_finished(report.generation, report.process), now);
      else
        finished_.push_back(report.process);
      return;
  }
}

/// Whether a loss is dealt with; otherwise why_not() is known.
bool RoundRecovery::is_ready() {
  if (is_on()) return true;
  if (why_not_.empty() && is_over_)
    why_not_ = "the training had ended on all ranks; what a program does after it is not repeated";
  if (why_not_.empty())
    why_not_ = begun_.empty() ? "no rank was in run_elastic(), or the reason was printed there"
                              : "not all ranks had begun their training";
  return false;
}

bool RoundRecovery::on_rank_ended(const elastic::RankProcess& process, const std::string& how, Time now) {
  if (!is_ready()) return false;
  act(planner_->on_lost(process, how, now), now);
  return is_on();
}

void RoundRecovery::on_spare_ended(const elastic::RankProcess& process, const std::string& how, Time now) {
  if (is_on()) act(planner_->on_lost(process, how, now), now);
}

bool RoundRecovery::on_node_lost(int node, const std::string& how, bool has_successor, Time now) {
  if (!is_ready()) return false;
  act(planner_->on_node_lost(node, how, has_successor, now), now);
  return is_on();
}

bool RoundRecovery::on_node_leaves(int node, const std::string& why, Time now) {
  elastic::PlannerActions actions;
  if (!is_on() || !planner_->on_node_leaves(node, why, now, actions)) return false;
  act(actions, now);
  return true;
}

bool RoundRecovery::on_hang(int rank, const std::string& text, bool can_show_stacks, Time now) {
  if (!is_on()) return false;
  // Then the planner has its own limits.
  if (planner_->is_recovering()) return true;
  // The job ends with the hang, rather than with the signal that would end it.
  if (!planner_->has_recoveries_left()) return false;
  actions_.say("the job hangs: " + text);
  hang_ = Hang{{.rank = rank, .process = process_of(rank)}, text, can_show_stacks};
  act(planner_->on_hang(rank, "makes no progress (--heartbeat-timeout)", now), now);
  return true;
}

std::string RoundRecovery::hang_of(int rank) const {
  const bool is_it = hang_ && hang_->process == elastic::RankProcess{rank, process_of(rank)};
  return is_it ? hang_->text : "";
}

int RoundRecovery::process_of(int rank) const {
  const auto found = processes_.find(rank);
  return found == processes_.end() ? 0 : found->second;
}

/// A new process must be what the first one was: the same files, arguments and prepared objects.
bool RoundRecovery::is_same_program(const RankReport& report) {
  if (report.program.empty()) return true;
  const auto [first, is_new] = programs_.emplace(report.process.rank, report.program);
  if (is_new) return true;
  const std::string difference = elastic::difference_of_programs(first->second, report.program);
  if (difference.empty()) return true;
  const std::string why = fmt::format("{} is not the program that the rank began with: {}",
                                      elastic::describe(report.process), difference);
  // Those that wait for the new process must be stopped.
  gave_up_ = is_recovering();
  if (!gave_up_) actions_.say("lost ranks will not be replaced any more: " + why);
  stop(gave_up_ ? "the ranks are not recovered: " + why : why);
  return false;
}

void RoundRecovery::on_timer(Time now) {
  if (is_on()) act(planner_->on_timer(now), now);
}

RoundRecovery::Time RoundRecovery::deadline() const { return is_on() ? planner_->deadline() : Time::max(); }

/// Ranks that wait for a decision, or for the end of the others, get an answer.
void RoundRecovery::stop(const std::string& why) {
  if (is_over_) return;
  if (why_not_.empty()) why_not_ = why;
  write_over(why);
  if (planner_) {
    for (const auto& spare : planner_->spares())
      actions_.kill(node_of(spare.rank), {.round = round_, .rank = spare.rank, .process = spare.process});
  }
  planner_.reset();
}

void RoundRecovery::write_over(const std::string& why) {
  is_over_ = true;
  const elastic::Generation generation = planner_ ? planner_->generation() : 1;
  actions_.write(elastic::decision_key(generation + 1), elastic::text_of(elastic::Decision{.why = why}));
  actions_.write(elastic::end_key(generation), elastic::kMayLeave);
}

ReplaceRank RoundRecovery::order_to_start(const elastic::RankProcess& process,
                                          elastic::Generation generation) {
  processes_[process.rank] = process.process;
  return {.round = round_,
          .rank = process.rank,
          .process = process.process,
          .replaces = elastic::text_of(elastic::Replacement{process.process, generation})};
}

void RoundRecovery::act(const elastic::PlannerActions& actions, Time now) {
  for (const auto& action : actions) {
    std::visit(
        Overloaded{
            [&](const elastic::Revoke& revoke) {
              since_ = now;
              actions_.write(elastic::revoked_key(revoke.generation), revoke.why);
              for (std::size_t rank = 0; rank < nodes_.size(); ++rank)
                actions_.write(elastic::wake_key(revoke.generation, static_cast<int>(rank)), "1");
              actions_.write(elastic::end_key(revoke.generation), elastic::kMustHelp);
              actions_.say(fmt::format("{}: recovery {} of {}, the others keep their processes", revoke.why,
                                       planner_->recoveries(), options_.max_recoveries));
            },
            [&](const elastic::Kill& kill) {
              const std::string activity = actions_.activity(kill.process.rank);
              actions_.say(fmt::format("{} {}{}: killing it", elastic::describe(kill.process), kill.why,
                                       activity.empty() ? "" : ", last seen in " + activity));
              actions_.kill(kill.node,
                            {.round = round_,
                             .rank = kill.process.rank,
                             .process = kill.process.process,
                             .stacks_first = hang_ && hang_->process == kill.process && hang_->shows_stacks});
            },
            [&](const elastic::Replace& replace) {
              actions_.replace(replace.node, order_to_start(replace.process, replace.generation));
            },
            [&](const elastic::StartNode& start) {
              std::vector<ReplaceRank> ranks;
              for (const auto& process : start.processes)
                ranks.push_back(order_to_start(process, start.generation));
              actions_.start_node(start.node, ranks);
            },
            [&](const elastic::StartSpare& spare) {
              const elastic::RankProcess& process = spare.process;
              actions_.replace(spare.node,
                               {.round = round_,
                                .rank = process.rank,
                                .process = process.process,
                                .replaces = elastic::text_of(elastic::Replacement{process.process, 0}),
                                .is_spare = true});
            },
            [&](const elastic::CallSpare& call) {
              processes_[call.process.rank] = call.process.process;
              actions_.write(elastic::call_key(call.process), std::to_string(call.generation));
              actions_.replace(call.node,
                               {.round = round_, .rank = call.process.rank, .process = call.process.process});
            },
            [&](const elastic::EndSpare& end) {
              actions_.kill(end.node,
                            {.round = round_, .rank = end.process.rank, .process = end.process.process});
            },
            [&](const elastic::TellOfSpare& tell) {
              actions_.say(fmt::format("the spare {} {}", elastic::describe(tell.process), tell.text));
            },
            [&](const elastic::Publish& publish) {
              actions_.write(elastic::decision_key(publish.plan.generation),
                             elastic::text_of(elastic::Decision{.plan = publish.plan}));
              actions_.say(fmt::format(
                  "all ranks are there again after {}: they go on after step {}, with the state of rank {}",
                  format_seconds(std::chrono::duration_cast<std::chrono::milliseconds>(now - since_)),
                  publish.plan.step, publish.plan.source));
            },
            [&](const elastic::ConfirmFinish&) { write_over("all ranks have finished their training"); },
            [&](const elastic::GiveUp& give_up) {
              why_not_ = give_up.reason;
              gave_up_ = true;
              write_over(give_up.reason);
            }},
        action);
  }
}

}  // namespace lockstep::launch
