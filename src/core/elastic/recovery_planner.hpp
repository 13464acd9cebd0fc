#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/elastic/recovery_plan.hpp"
#include "core/running_clock.hpp"

namespace lockstep::elastic {

struct RecoveryOptions {
  using Milliseconds = std::chrono::milliseconds;
  /// How many recoveries a round may have; 0: none.
  int max_recoveries = 0;
  /// A rank that has not left its collectives for so long after the start of a recovery is killed.
  Milliseconds park_timeout = std::chrono::seconds(10);
  /// How long a process may take to end after SIGKILL.
  Milliseconds kill_timeout = std::chrono::seconds(30);
  /// How long a new process may take for its set-up, until it reaches its training.
  Milliseconds replacement_timeout = std::chrono::minutes(10);
  /// How much longer those may take that take the place of a lost node's: what a lost process holds, as the
  /// lease of a folder, is free only after a while.
  Milliseconds lost_node_timeout = std::chrono::seconds(20);
  /// So many ranks of each node, its first ones, have a spare: a process that has done its set-up as that
  /// rank, and waits until the rank's own one is lost.
  int spares = 0;
};

/// The actions of the planner.
/// Write that the generation ends: every rank aborts its operations and parks.
struct Revoke {
  Generation generation = 0;
  std::string why;
};
/// End that process, and report `on_lost` when it has ended. It may already have.
struct Kill {
  RankProcess process;
  int node = 0;
  /// Completes the sentence "rank 1 ".
  std::string why;
};
/// Start that process on its node. It parks for `generation` when its set-up is done.
struct Replace {
  RankProcess process;
  int node = 0;
  Generation generation = 0;
};
/// Start these processes on another node, which takes the number of the lost one. They park for `generation`,
/// as those of Replace.
struct StartNode {
  int node = 0;
  /// By rank: all of that node.
  std::vector<RankProcess> processes;
  Generation generation = 0;
};
/// Start that process on its node, beside the rank's own one. It does the rank's set-up and waits.
struct StartSpare {
  RankProcess process;
  int node = 0;
};
/// That spare takes the place of its rank's process, which has ended. It parks for `generation`, as soon as
/// its set-up is done. It may have ended: then its end was reported, or will be.
struct CallSpare {
  RankProcess process;
  int node = 0;
  Generation generation = 0;
};
/// End that spare, which will not be called. Nothing needs to be known of its end.
struct EndSpare {
  RankProcess process;
  int node = 0;
};
/// Write the plan, once.
struct Publish {
  RecoveryPlan plan;
};
/// Write that all ranks have finished their training. The generation can no longer be revoked.
struct ConfirmFinish {
  Generation generation = 0;
};
/// No recovery is possible: do what is done without one. The planner does nothing more.
struct GiveUp {
  std::string reason;
};
/// Tell the user about a spare. Completes the sentence "rank 1 (process 2) ".
struct TellOfSpare {
  RankProcess process;
  std::string text;
};
using PlannerAction = std::variant<Revoke, Kill, Replace, StartNode, StartSpare, CallSpare, EndSpare, Publish,
                                   ConfirmFinish, GiveUp, TellOfSpare>;
using PlannerActions = std::vector<PlannerAction>;

/// Decides how a round survives the loss of ranks: who is lost, who replaces them, from whom the state comes
/// and which step is computed again; or that it is impossible, and why. It is a state machine without clock,
/// sockets or threads, like the Coordinator that will own it: it is called with events and their times, and
/// returns actions. It needs no vote of the ranks, because of this invariant:
///
///   *Skew.* Every step contains an all-reduce to which every rank contributes after its backward. A rank
///   that has applied step k has seen the contributions of all ranks to it, lost ones included. So each of
///   them had applied step k - 1, and survivors differ by one step at most. Whoever has the newest clean
///   state can send it to the others; if a lost rank alone had applied step k, the others compute it again
///   from the same samples and random numbers, and so the same bits.
///
/// Membership is never inferred from silence: a rank is lost when its agent has collected its exit status.
/// That is why a replacement can never run beside the process that it replaces. A lost node is the exception:
/// its processes may live on, until their agent notices that it has lost the coordinator and ends them. They
/// are no members of a later generation, find nobody at the keys of theirs, and their reports name a process
/// that was replaced.
///
///     phase      event                                   action                               next phase
///     ---------  --------------------------------------  -----------------------------------  ----------
///     training   a process ended                         Revoke; CallSpare or Replace it      parking
///                a rank hangs                            Revoke; Kill it                      parking
///                a rank suspects another, or parks       Revoke                               parking
///                all ranks have finished                 ConfirmFinish; EndSpare              over
///                a node is lost, and another one waits   Revoke; StartNode                    parking
///                  ... otherwise; no recovery is left    GiveUp                               over
///                a node leaves, and another one waits    Revoke; Kill its processes           parking
///                a spare ended, or is too late (EndSpare)  StartSpare, three in a row at most  training
///     parking    a process ended                         CallSpare, or Replace it,            parking
///                                                        three times at most
///                a process did not park in time          Kill                                 parking
///                  ... and nobody else has a state       GiveUp                               over
///                a killed process does not end           GiveUp                               over
///                the third loss without a new step       GiveUp                               over
///                a spare ended                           - (a new one is started afterwards)  parking
///                all ranks have parked                   Publish the plan; StartSpare, or     training
///                                                        EndSpare after the last recovery
///                  ... and nobody has a state            GiveUp                               over
///                a node is lost, or all processes of     StartNode                            parking
///                  one that leaves have ended
///                  ... and no other one waits            GiveUp                               over
///
/// What arrives late changes nothing: reports of an older generation, and those of a process that was
/// replaced. Revoke and ConfirmFinish of one generation exclude each other. So no rank leaves a finished
/// training while another one still needs it as the source of its state.
///
/// A spare belongs to one rank, and is what a new process of that rank would be, started earlier: what a
/// program does in its set-up with its rank, environment and device needs no second thought. Its number is
/// the rank's next one. It has no part in a recovery until it is called, so its death costs nothing.
class RecoveryPlanner {
 public:
  using Time = RunningClock::time_point;

  /// `nodes[r]` is the node of rank r. All ranks are training, in generation 1.
  RecoveryPlanner(RecoveryOptions options, const std::vector<int>& nodes);

  /// Begins the training's spares. Call it once, at first.
  [[nodiscard]] PlannerActions start_spares(Time now);
  /// The spare has done its set-up.
  void on_spare_ready(const RankProcess& process);
  /// The process, or the spare, has ended, for whatever reason, and its exit status was collected. `why`
  /// completes the sentence "rank 1 ": "was killed by SIGKILL".
  [[nodiscard]] PlannerActions on_lost(const RankProcess& process, const std::string& why, Time now);
  /// All processes of the node are out of reach, for good. `has_successor`: another node can start as many
  /// ranks in its place. `why` completes the sentence "node 1 ".
  [[nodiscard]] PlannerActions on_node_lost(int node, const std::string& why, bool has_successor, Time now);
  /// Another node, which waits, is to start the node's ranks instead of it. True: Its processes are killed,
  /// and their successors started when all of them have ended. False: that is not possible now, and nothing
  /// was done. `why` completes the sentence "node 1 ".
  [[nodiscard]] bool on_node_leaves(int node, const std::string& why, Time now, PlannerActions& actions);
  /// A communication of that rank failed in `generation`.
  [[nodiscard]] PlannerActions on_suspect(Generation generation, const RankProcess& process,
                                          const std::string& why, Time now);
  /// The job makes no progress because of that rank, which is killed and replaced. During a recovery nothing
  /// is done: it has limits of its own. `why` completes the sentence "rank 1 ".
  [[nodiscard]] PlannerActions on_hang(int rank, const std::string& why, Time now);
  /// The rank waits for the plan of `generation`.
  [[nodiscard]] PlannerActions on_parked(Generation generation, const RankProcess& process,
                                         const HeldState& held, Time now);
  /// The rank has no more to train in `generation`, and waits until it may leave or must help the others.
  [[nodiscard]] PlannerActions on_finished(Generation generation, const RankProcess& process);
  /// Those that were started, or are to be, and have not been called.
  std::vector<RankProcess> spares() const;
  /// Whether another loss could be recovered, as far as their number goes.
  bool has_recoveries_left() const noexcept { return recoveries_ < options_.max_recoveries; }
  /// To be called at `deadline()`.
  [[nodiscard]] PlannerActions on_timer(Time now);
  /// Time::max(): never.
  Time deadline() const;

  /// The generation that trains, or that was revoked last.
  Generation generation() const noexcept { return generation_; }
  /// Whether that generation was revoked, and the plan of the next one is not made yet.
  bool is_recovering() const noexcept { return phase_ == Phase::parking; }
  int recoveries() const noexcept { return recoveries_; }
  /// Whether it has given up, or all ranks have finished.
  bool is_over() const noexcept { return phase_ == Phase::over; }
  /// What it waits for, in one line, without times: "generation 2 is revoked: rank 0 has parked at step 7,
  /// ...".
  std::string describe_state() const;

 private:
  enum class Phase { training, parking, over };
  enum class Status { running, finished, parked, killed, starting };
  struct Member {
    RankProcess process;
    int node = 0;
    Status status = Status::running;
    HeldState held = {};
    Time deadline = Time::max();
    /// The number of its last process, spares included.
    int last_process = 0;
    std::optional<int> spare = {};
    /// Until when the spare must have done its set-up; Time::max(): it has.
    Time spare_deadline = Time::max();
    /// Spares that ended in a row without having been called.
    int spares_ended = 0;
    /// The processes of this rank that ended during this recovery.
    int ended = 0;
    /// Its next process is started on another node, together with all of this one.
    bool leaves = false;
    bool operator==(const RankProcess& other) const { return process == other; }
  };

  Member* find(const RankProcess& process);
  void begin(const std::string& why, Time now, PlannerActions& actions);
  void replace(Member& member, const std::string& why, Time now, PlannerActions& actions);
  void renew(Member& member, Time now);
  void start_node(int node, Time now, PlannerActions& actions);
  bool can_go_on(const Member& renewed, const std::string& why, PlannerActions& actions);
  Member* find_spare(const RankProcess& process);
  bool lose_spare(const RankProcess& process, const std::string& why, Time now, PlannerActions& actions);
  void add_spares(Time now, PlannerActions& actions);
  void end_spares(PlannerActions& actions);
  void kill(Member& member, const std::string& why, Time now, PlannerActions& actions);
  void count_repeats(PlannerActions& actions);
  void publish_if_complete(Time now, PlannerActions& actions);
  bool has_source() const;
  std::string late_set_up() const;
  std::optional<RecoveryPlan> choose_state(std::string& reason) const;
  void give_up(const std::string& reason, PlannerActions& actions);
  std::string_view status_text(Status status) const;

  RecoveryOptions options_;
  Phase phase_ = Phase::training;
  Generation generation_ = 1;
  /// By rank.
  std::vector<Member> members_;
  int recoveries_ = 0;
  /// Why the current recovery began.
  std::string cause_;
  /// The highest step of a plan, and how many losses in a row got no further.
  std::optional<std::uint64_t> best_step_;
  int repeats_ = 0;
  /// Whether repeats_ contains the loss that is being recovered.
  bool is_counted_ = false;
};

}  // namespace lockstep::elastic
