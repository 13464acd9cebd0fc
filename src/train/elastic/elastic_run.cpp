#include "train/elastic/elastic_run.hpp"

#include <fmt/core.h>

#include <atomic>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "comm/group_observer.hpp"
#include "comm/set_up_record.hpp"
#include "coordination/interruption.hpp"
#include "core/text.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"
#include "train/accumulation_window.hpp"
#include "train/elastic/program_text.hpp"
#include "train/prepared_objects.hpp"
#include "train/training_scope.hpp"

namespace lockstep {
namespace train {
namespace {

using elastic::HeldState;
using elastic::MemberActions;
using elastic::RankReport;
using nlohmann::json;

/// Tells the observers of the group that ranks may be lost.
class NoticeOfLosses final : public comm::GroupObserver {
 public:
  void release() override {}
  void reseat() override {}
  bool announces_losses() const noexcept override { return true; }
};

/// Trainings of this process that recoveries were asked for.
std::atomic<int> trainings{0};

elastic::RankProcess this_rank(const Accelerator& accelerator,
                               const std::optional<elastic::Replacement>& replacement) {
  return {.rank = accelerator.process_index(), .process = replacement ? replacement->process : 0};
}

}  // namespace

ElasticRun::ElasticRun(ElasticState& state, const Store& store,
                       const std::optional<elastic::Replacement>& replacement)
    : state_(state),
      accelerator_(state.accelerator_),
      store_(store),
      replacement_(replacement),
      link_(store, this_rank(accelerator_, replacement)),
      training_(accelerator_, link_.agree_on_seed(TrainingScope::seed_of(accelerator_))),
      processes_(static_cast<std::size_t>(accelerator_.num_processes())) {
  state_.commit_ = [this] { commit(); };
  state_.refuse_ = [this](const std::string& why) {
    if (link_.self().rank == 0)
      std::cerr << "lockstep: from now on lost ranks will not be replaced (--max-recoveries): " + why + "\n"
                << std::flush;
    refuse(why);
  };
}

ElasticRun::~ElasticRun() {
  state_.commit_ = nullptr;
  state_.refuse_ = nullptr;
  TrainingScope::on_commit(accelerator_, nullptr);
  watch_.reset();
  coordination::allow_waits();
}

bool ElasticRun::will_recover(const Accelerator& accelerator) {
  return is_elastic() && why_not(accelerator).empty();
}

std::string ElasticRun::why_not(const Accelerator& accelerator) {
  if (trainings > 0) return "an earlier training of this process has used them";
  if (accelerator.num_processes() == 1) return "there is no other rank that would hold the state";
  if (!accelerator.world().use_agent_store)
    return "the ranks have a store of their own (TORCH_DISABLE_SHARE_RDZV_TCP_STORE)";
  if (!accelerator.device().is_cpu()) return "a group with GPUs cannot be formed again";
  if (accelerator.process_group().generation() != 1 && !comm::is_newcomer(accelerator.process_group()))
    return "the program has formed the group again by itself";
  if (accelerator.options().comm_hook.find("power_sgd") != std::string::npos)
    return "each rank has a memory of its own for the hook " + accelerator.options().comm_hook;
  return TrainingScope::prepared_of(accelerator)
      .state(TrainingScope::window_of(accelerator).scaling())
      .why_not_given();
}

void ElasticRun::run_without(ElasticState& state, const std::function<void(ElasticState&)>& body) {
  const Accelerator accelerator = state.accelerator_;
  state.step_ = TrainingScope::loaded_step(accelerator);
  UpdateWatch updates(accelerator);
  updates.mark();
  state.commit_ = [&] {
    if (!updates.has_stepped()) return;
    updates.mark();
    ++state.step_;
    if (state.is_plain_loop_) process_heartbeat().finished_step();
  };
  TrainingScope::on_commit(accelerator, state.commit_);
  const std::shared_ptr<void> at_end(nullptr, [&](void*) {
    TrainingScope::on_commit(accelerator, nullptr);
    state.commit_ = nullptr;
  });
  body(state);
}

void ElasticRun::run(const std::function<void(ElasticState&)>& body) {
  coordination::make_waits_interruptible();
  TrainingScope::on_commit(accelerator_, [this] { commit(); });
  // Both are mistakes that all ranks share, or that a new process would repeat.
  try {
    run_until_finished(body);
  } catch (const UsageError& error) {
    refuse(error.what());
    throw;
  } catch (const DataError& error) {
    refuse(error.what());
    throw;
  }
}

void ElasticRun::refuse(const std::string& why) {
  link_.report({.what = RankReport::What::refused,
                .process = link_.self(),
                .generation = accelerator_.process_group().generation(),
                .why = why});
}

void ElasticRun::run_until_finished(const std::function<void(ElasticState&)>& body) {
  if (replacement_) {
    join();
  } else {
    begin(TrainingScope::loaded_step(accelerator_));
  }
  do {
    enter(body);
  } while (!finish());
}

/// Returns when the body has returned.
void ElasticRun::enter(const std::function<void(ElasticState&)>& body) {
  for (;;) {
    try {
      tell_change();
      return body(state_);
    } catch (const CommunicationError& error) {
      unwind(error.what());
      recover(std::current_exception());
    }
  }
}

void ElasticRun::tell_change() {
  const auto change = std::exchange(change_, std::nullopt);
  if (change && state_.on_change_) state_.on_change_(*change);
}

void ElasticRun::watch(elastic::Generation generation) {
  coordination::allow_waits();
  watch_.emplace(store_.with_prefix(elastic::kWatchPrefix), accelerator_.process_group(), generation,
                 [](const std::string& why) { coordination::interrupt_waits(why); });
}

void ElasticRun::begin(std::uint64_t step) {
  member_.emplace(link_.self(), step);
  member_->stage_transfers(false);
  watch(1);
  notice_of_losses_ = std::make_shared<NoticeOfLosses>();
  comm::observe(accelerator_.process_group(), notice_of_losses_);
  training_.begin(step);
  begin_step();
  link_.report({.what = RankReport::What::begun,
                .process = link_.self(),
                .held = member_->held(),
                .program = program_text(accelerator_)});
  check_set_up();
}

/// A new process would find it at the first loss.
void ElasticRun::check_set_up() {
  const std::string found = comm::end_set_up(accelerator_.process_group());
  if (found.empty()) return;
  state_.refuse_(
      fmt::format("the program calls {} before run_elastic(), which nobody would answer in a process that "
                  "replaces a lost "
                  "one. Move it into the body of run_elastic(), or compute its result on every rank",
                  found));
}

void ElasticRun::begin_step() {
  static_cast<void>(member_->begin_step());
  in_step_ = true;
  state_.step_ = training_.step();
  state_.generation_ = member_->generation();
}

void ElasticRun::commit() {
  if (training_.held().kind != HeldState::Kind::torn) return;
  demand_success("goes on");
  if (state_.repeats_) demand_place();
  static_cast<void>(member_->commit());
  training_.commit();
  state_.repeats_ = false;
  if (state_.is_plain_loop_) process_heartbeat().finished_step();
  begin_step();
}

/// A spare's set-up is done. Returns when the process of its rank has ended.
elastic::Generation ElasticRun::await_call() {
  link_.report({.what = RankReport::What::ready,
                .process = link_.self(),
                .generation = 0,
                .program = program_text(accelerator_)});
  const Heartbeat::Waiting beat(process_heartbeat(), "a call to take the place of its rank", 0);
  return link_.await_call();
}

/// A process that replaces another one, whose set-up is done: like the others, it waits for the plan.
void ElasticRun::join() {
  const elastic::Generation generation = replacement_->is_spare() ? await_call() : replacement_->generation;
  member_ = elastic::Member::replacement(link_.self(), generation);
  member_->stage_transfers(false);
  notice_of_losses_ = std::make_shared<NoticeOfLosses>();
  comm::observe(accelerator_.process_group(), notice_of_losses_);
  report(member_->on_ready());
  recover(nullptr);
}

void ElasticRun::notice_revocation() {
  if (watch_ && watch_->is_revoked())
    static_cast<void>(member_->on_revoked(member_->generation(), "the launcher has ended the generation"));
}

/// Gradients of this rank alone must not become a state that others take.
void ElasticRun::demand_success(const char* what) const {
  if (!comm::has_failed_operation(accelerator_.process_group())) return;
  throw UsageError(
      fmt::format("rank {}: the body of run_elastic() {} after step {}, although a communication had failed: "
                  "do not catch CommunicationError in it",
                  link_.self().rank, what, training_.step()));
}

/// Of the first step after a recovery.
void ElasticRun::demand_place() const {
  const std::string moved = training_.moved_back();
  if (moved.empty()) return;
  throw UsageError(
      fmt::format("rank {}: after a recovery the body of run_elastic() has moved {}: it must go on where its "
                  "loaders are, as in while (loader.epoch() < epochs), not count for itself",
                  link_.self().rank, moved));
}

bool ElasticRun::finish() {
  if (training_.held().kind == HeldState::Kind::torn) commit();
  notice_revocation();
  if (!member_->is_revoked()) demand_success("has returned");
  in_step_ = false;
  report(member_->on_body_returned());
  if (member_->is_parked()) {
    accelerator_.process_group().abort("a rank was lost");
    recover(nullptr);
    return false;
  }
  const Heartbeat::Waiting beat(process_heartbeat(), "the end of the training on all ranks", 0);
  const elastic::Generation generation = member_->generation();
  if (link_.await_end(generation)) {
    static_cast<void>(member_->on_finish_confirmed(generation));
    return true;
  }
  report(member_->on_revoked(generation, "a rank was lost at the end of its training"));
  recover(nullptr);
  return false;
}

/// The body, or the forming of the group, was left by an error.
void ElasticRun::unwind(const std::string& why) {
  notice_revocation();
  if (std::exchange(in_step_, false) && training_.held().kind == HeldState::Kind::torn)
    member_->on_optimizer_step();
  accelerator_.process_group().abort(why);
  report(member_->on_unwound(why));
}

void ElasticRun::report(const MemberActions& actions) {
  for (const auto& action : actions) {
    if (const auto* suspect = std::get_if<elastic::ReportSuspect>(&action)) {
      link_.report({.what = RankReport::What::suspect,
                    .process = link_.self(),
                    .generation = suspect->generation,
                    .why = suspect->why});
    } else if (const auto* parked = std::get_if<elastic::ReportParked>(&action)) {
      link_.report(
          {.what = RankReport::What::parked,
           .process = link_.self(),
           .generation = parked->generation,
           .held = parked->held,
           .program = parked->held.kind == HeldState::Kind::none && replacement_ && !replacement_->is_spare()
                          ? program_text(accelerator_)
                          : ""});
    } else if (const auto* finished = std::get_if<elastic::ReportFinished>(&action)) {
      link_.report(
          {.what = RankReport::What::finished, .process = link_.self(), .generation = finished->generation});
    } else if (const auto* discard = std::get_if<elastic::DiscardStep>(&action)) {
      undo_is_due_ = undo_is_due_ || discard->restore;
    }
  }
}

/// This rank is parked. Returns when the body may be entered again. `cause`: what ended it, thrown on if
/// there is no recovery.
void ElasticRun::recover(const std::exception_ptr& cause) {
  for (;;) {
    const Heartbeat::Waiting beat(process_heartbeat(), "the replacement of a lost rank",
                                  member_->generation());
    const elastic::Decision decision = link_.await_decision(member_->generation() + 1);
    if (!decision.plan) {
      if (cause) std::rethrow_exception(cause);
      throw CommunicationError(fmt::format("rank {}: a rank was lost, and the ranks are not recovered: {}",
                                           link_.self().rank, decision.why));
    }
    try {
      reform(*decision.plan);
      return settle(*decision.plan);
    } catch (const UsageError&) {
      throw;
    } catch (const CommunicationError& error) {
      unwind(error.what());
    }
  }
}

void ElasticRun::reform(const elastic::RecoveryPlan& plan) {
  watch_.reset();
  for (const auto& action : member_->on_plan(plan)) {
    if (const auto* leave = std::get_if<elastic::Leave>(&action)) throw UsageError(leave->why);
  }
  watch(plan.generation);
  accelerator_.process_group().reform(plan.generation);
}

/// The group is formed: all ranks take the state of the plan's source.
void ElasticRun::settle(const elastic::RecoveryPlan& plan) {
  const ProcessGroup& group = accelerator_.process_group();
  if (undo_is_due_) training_.undo_step();
  undo_is_due_ = false;
  static_cast<void>(member_->on_group_ready());
  const bool receives = member_->is_joining();
  training_.take_state_of(plan.source, plan.step, !plan.receivers.empty());
  const auto parts = TrainingScope::elastic_parts(accelerator_);
  json given{{"processes", processes_}, {"parts", json::array()}};
  for (const auto* part : parts) given["parts"].push_back(part->elastic_state());
  given = group.broadcast_object(given, plan.source);
  const json& states = given["parts"];
  if (states.size() != parts.size())
    throw UsageError(
        fmt::format("rank {} has {} objects for checkpoints, but rank {} has {}: make the same on "
                    "every rank before run_elastic()",
                    group.rank(), parts.size(), plan.source, states.size()));
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i]->take_elastic_state(states[i]);
  if (receives) {
    TrainingScope::resume_at(accelerator_, plan.step);
    static_cast<void>(member_->on_state_ready());
  }
  comm::take_part(group);
  note_change(plan, given["processes"].get<std::vector<int>>());
  state_.repeats_ = true;
  begin_step();
}

/// `before`: the processes of the ranks when they trained last.
void ElasticRun::note_change(const elastic::RecoveryPlan& plan, const std::vector<int>& before) {
  change_ = GroupChange{.generation = plan.generation, .step = plan.step};
  for (const auto& member : plan.members) {
    const auto rank = static_cast<std::size_t>(member.rank);
    if (member.process != before.at(rank)) change_->replaced.push_back(member.rank);
    processes_[rank] = member.process;
  }
}

}  // namespace train

bool is_elastic() {
  const auto recoveries = find_variable(process_environment(), elastic::kRecoveriesVariable);
  return recoveries && parse_whole_number(*recoveries, 1).has_value();
}

void run_elastic_loop(ElasticState& state, const std::function<void(ElasticState&)>& body) {
  using train::ElasticRun;
  const Accelerator accelerator = state.accelerator_;
  if (!is_elastic()) return ElasticRun::run_without(state, body);
  const std::string why = ElasticRun::why_not(accelerator);
  ++train::trainings;
  if (!why.empty()) {
    if (accelerator.is_main_process())
      std::cerr << "lockstep: lost ranks will not be replaced (--max-recoveries): " + why + "\n"
                << std::flush;
    return ElasticRun::run_without(state, body);
  }
  ElasticRun run(state, Store::connect(accelerator.world()), comm::replacement_of_this_process());
  run.run(body);
}

}  // namespace lockstep
