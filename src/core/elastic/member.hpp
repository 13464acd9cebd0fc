#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/elastic/recovery_plan.hpp"

namespace lockstep::elastic {

/// What a rank does.
/// Keep aside what the step changes before its optimizers: buffers, loader positions, the accumulation
/// window.
struct KeepAside {};
/// The step is committed, or its state is replaced: what was kept aside is not needed any more.
struct DropKept {};
/// End all operations of the group with an error. Called by the thread that watches, while the program
/// computes.
struct AbortGroup {
  std::string why;
};
struct ReportSuspect {
  Generation generation = 0;
  std::string why;
};
/// Drop gradients and outstanding operations.
struct DiscardStep {
  /// Put back what was kept aside, so that the state is that of the last commit.
  bool restore = false;
};
/// Report that the rank waits for the plan of that generation.
struct ReportParked {
  Generation generation = 0;
  HeldState held;
};
/// Make the group anew with the plan's members. Then call `on_group_ready`.
struct Reform {
  RecoveryPlan plan;
};
/// Send the whole state to these ranks.
struct SendState {
  std::vector<int> receivers;
};
/// Receive the whole state from that rank. Then call `on_state_ready`.
struct ReceiveState {
  int source = -1;
};
/// Enter the program's training loop, which goes on with that step.
struct Enter {
  Generation generation = 0;
  std::uint64_t step = 0;
};
struct ReportFinished {
  Generation generation = 0;
};
/// Leave the training: return from it, or throw if `why` is not empty.
struct Leave {
  std::string why;
};
using MemberAction = std::variant<KeepAside, DropKept, AbortGroup, ReportSuspect, DiscardStep, ReportParked,
                                  Reform, SendState, ReceiveState, Enter, ReportFinished, Leave>;
using MemberActions = std::vector<MemberAction>;

/// One rank's side of a recovery: what state it holds, what it may do, and what it reports. A state machine
/// without clock, sockets or threads, which also knows no tensors: the caller tells it what happened, and
/// does what it returns, in that order. Not thread-safe.
///
///     phase     event                                  actions                                    next phase
///     --------  -------------------------------------  -----------------------------------------  ----------
///     set-up    on_ready (a new process)               ReportParked                               parked
///     training  begin_step                             KeepAside                                  training
///               on_optimizer_step                      - (the state is torn)                      training
///               commit                                 DropKept (the state is clean)              training
///               on_body_returned                       ReportFinished                             finished
///                 ... and it was revoked               DiscardStep, ReportParked                  parked
///               on_revoked                             AbortGroup                                 training
///               on_unwound                             ReportSuspect unless it was revoked,       parked
///                                                      DiscardStep, ReportParked
///     finished  on_finish_confirmed                    DropKept, Leave                            left
///               on_revoked                             AbortGroup, DiscardStep, ReportParked      parked
///     parked    on_plan with this process              Reform                                     joining
///               on_plan without it                     Leave, with an error                       left
///               on_revoked (the plan was missed)       ReportParked for the generation after      parked
///     joining   on_group_ready                         SendState, ReceiveState, Enter             training,
///                                                                                                 joining
///               on_state_ready                         DropKept, Enter                            training
///               on_revoked                             AbortGroup                                 joining
///               on_unwound                             as in training                             parked
///
/// Notices of older generations are ignored in every phase; they arrive on several connections, in any order.
class Member {
 public:
  /// A rank of the first generation: it trains, at `step`.
  Member(RankProcess self, std::uint64_t step);
  /// A new process that will park for `generation`.
  static Member replacement(RankProcess self, Generation generation);
  /// A receiver keeps its own state until it has the whole of the new one. Costs memory for a second state;
  /// without it, the loss of the source in the middle of a transfer may leave nobody with a whole state.
  void stage_transfers(bool stage) noexcept { stages_ = stage; }

  [[nodiscard]] MemberActions on_ready();
  [[nodiscard]] MemberActions begin_step();
  /// An optimizer or a scheduler is about to change the state.
  void on_optimizer_step();
  [[nodiscard]] MemberActions commit();
  /// The training loop has returned. Throws UsageError between an optimizer's step and the commit.
  [[nodiscard]] MemberActions on_body_returned();

  [[nodiscard]] MemberActions on_revoked(Generation generation, const std::string& why);
  /// A communication error has ended the training loop, or the re-forming of the group.
  [[nodiscard]] MemberActions on_unwound(const std::string& why);
  [[nodiscard]] MemberActions on_plan(const RecoveryPlan& plan);
  [[nodiscard]] MemberActions on_group_ready();
  [[nodiscard]] MemberActions on_state_ready();
  [[nodiscard]] MemberActions on_finish_confirmed(Generation generation);

  const RankProcess& self() const noexcept { return self_; }
  Generation generation() const noexcept { return generation_; }
  const HeldState& held() const noexcept { return held_; }
  bool is_training() const noexcept { return phase_ == Phase::training; }
  bool is_joining() const noexcept { return phase_ == Phase::joining; }
  bool is_parked() const noexcept { return phase_ == Phase::parked; }
  bool has_left() const noexcept { return phase_ == Phase::left; }
  /// Whether this generation was revoked, or an operation of it would fail.
  bool is_revoked() const noexcept { return revoked_; }
  /// In one line: "rank 1: generation 2, parked, at step 7".
  std::string describe_state() const;

 private:
  enum class Phase { set_up, training, finished, parked, joining, left };

  void park(MemberActions& actions);
  void enter(MemberActions& actions);
  [[noreturn]] void refuse(const char* event) const;

  RankProcess self_;
  bool stages_ = true;
  Phase phase_ = Phase::training;
  Generation generation_ = 1;
  bool revoked_ = false;
  HeldState held_;
  /// Between begin_step and commit.
  bool in_step_ = false;
  /// The plan that is being carried out, while joining.
  std::optional<RecoveryPlan> plan_;
};

}  // namespace lockstep::elastic
