#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/elastic/member.hpp"
#include "core/elastic/recovery_planner.hpp"

namespace lockstep::elastic {

/// For std::visit with a lambda for each type.
template <class... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <class... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

/// SplitMix64's finaliser.
inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a * 0x9e3779b97f4a7c15ULL + b + 0x632be59bd9b4e019ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// What a rank contributes: the gradient of its sample at these weights, with dropout drawn from step and
/// rank.
inline std::uint64_t gradient(std::uint64_t weights, std::uint64_t loader, std::uint64_t step, int rank) {
  return mix(mix(weights, loader), mix(step, static_cast<std::uint64_t>(rank)));
}

inline std::uint64_t update(std::uint64_t weights, std::uint64_t reduced) { return mix(weights, reduced); }

struct WorldOptions {
  /// The node of each rank.
  std::vector<int> nodes = {0, 0, 1};
  std::uint64_t steps = 3;
  /// Nodes that wait, and can take the place of a lost one.
  int spare_nodes = 0;
  /// Optimizers that step between two collectives.
  int objects = 2;
  /// A collective between the optimizers and the commit: the loss for a progress bar. It makes torn
  /// survivors.
  bool reduces_before_commit = false;
  bool stages_transfers = true;
  /// Rank 0 writes a checkpoint after so many steps, from which a restart goes on; 0: never.
  std::uint64_t checkpoint_every = 0;
  std::uint64_t first_step = 0;
  /// For a search: join to one what a process does between two operations that others can see, let agents
  /// obey at once, and drop what will be ignored on arrival. That leaves fewer orders to try, and no outcome
  /// out: nobody can see the difference.
  bool joins_local_steps = false;
  RecoveryOptions recovery = {.max_recoveries = 1000};
};

/// One thing that may happen next.
struct Choice {
  enum class Kind {
    run,           // The process makes its next step.
    fail,          // Its collective ends with an error: it was aborted, or a peer is dead or does not answer.
    hear_revoked,  // A notice of the store reaches the process: two connections, so in any order.
    hear_plan,
    report,   // The oldest report of the process reaches the planner.
    command,  // The oldest command of the planner reaches the node's agent.
    event,    // The oldest exit status of the node's processes reaches the planner.
    fence,    // The agent of a lost node, which has lost its coordinator, ends its processes. Until then they
              // may still reach the store.
    resume,
    timer,
    // Faults.
    crash,
    pause,
    glitch,  // A collective of that process fails without a cause.
    lose_node,
    drain_node,  // The node is asked to end, and another one waits.
    hurry,       // The planner's timer ends although everything is on its way: all of it is slow.
    hang,        // The launcher finds that the job hangs because of that process, which runs no more.
    stick,       // The same of a process that hangs in the kernel: SIGKILL does not end it.
  };
  Kind kind = Kind::run;
  /// Of a process or a node.
  int index = 0;
  bool is_fault() const { return kind >= Kind::crash; }
  std::string describe() const;
};

/// A violation of what the recovery promises.
struct Violation {
  std::string invariant;
  std::string details;
};

/// A round of training as the planner and its members see it: real RecoveryPlanner, real Members; modelled
/// are the ranks' program, the store, agents and connections. Nothing happens by itself: `choices` lists what
/// may happen next, in whatever order messages and processes may be delayed, and `apply` lets it happen. A
/// world is a value, so a search may copy it and try all choices.
///
/// The model of training keeps what bit equality depends on. The weights are a hash chain: step k + 1 hashes
/// the weights of step k and the contribution of each rank in rank order, which depends on its sample (its
/// loader's position) and its random numbers (step and rank). A rank that repeats a step with another sample,
/// resumes with another state or misses a restored position leaves the chain of the undisturbed run. What
/// follows the last commit moves the loader too, as the end of an epoch does.
///
/// Checked after everything that happens:
///   group       all contributions to a collective come from the same members, step and weights
///   generation  nobody contributes to a generation that is not the newest plan's
///   plan        one plan for each generation, and generations without a gap
///   bits        a committed step has the weights of the undisturbed run
///   skew        clean states of live processes differ by one step at most
///   undone      no process falls behind a step that it has committed
///   fence       a process is started, or a spare called, only when no other one of its rank is alive, except
///               on a lost node
///   survivors   a process is killed only if it hangs or did not park in time, a spare only before its call
///   stuck       something can happen, or the training has ended
class World {
 public:
  explicit World(WorldOptions options);

  /// All that may happen next, faults included. Timers are listed only if nothing else can happen.
  std::vector<Choice> choices() const;
  void apply(const Choice& choice);

  /// Whether all ranks have left after the last step, or the planner has given up.
  bool is_over() const { return has_succeeded() || verdict_.has_value(); }
  bool has_succeeded() const;
  bool has_confirmed_finish() const { return finish_confirmed_; }
  const std::optional<std::string>& verdict() const { return verdict_; }
  const std::optional<Violation>& violation() const { return violation_; }
  const RecoveryPlanner& planner() const { return planner_; }
  int crashes() const { return crashes_; }
  /// How many ranks were lost with their nodes.
  int lost_with_nodes() const { return lost_with_nodes_; }
  /// How often a spare took the place of a lost process.
  int called() const { return static_cast<int>(calls_.size()); }
  std::uint64_t newest_checkpoint() const { return checkpoint_.value_or(0); }
  int started() const { return static_cast<int>(processes_.size()); }
  /// Ends the node's processes, as its agent does when the coordinator stops the round.
  void stop_node(int node);
  /// Whether all ranks of the node have left after the last step.
  bool has_left(int node) const;

  /// Two worlds with the same key have the same future. Times are left out, except which timer is next.
  std::string key() const;
  std::string describe() const;

 private:
  struct Finished {
    Generation generation = 0;
  };
  struct Revoked {
    Generation generation = 0;
    std::string why;
  };
  using PlanNotice = std::variant<RecoveryPlan, Finished>;
  using Report = std::variant<ReportSuspect, ReportParked, ReportFinished>;
  using Command = std::variant<Kill, Replace, StartSpare, EndSpare>;
  struct Node;
  enum class Position {
    set_up,
    spare,
    begin,
    enter,
    wait,
    optimizer,
    enter_again,
    wait_again,
    commit,
    idle,
    join,
    joined,
    receive
  };
  struct State {
    std::uint64_t weights = 0;
    std::uint64_t loader = 0;
  };
  struct Process {
    Member member;
    /// Of nodes_.
    int node = 0;
    bool is_spare = false;
    bool alive = true;
    bool paused = false;
    bool stuck = false;
    Position position = Position::begin;
    State state = {};
    State kept = {};
    /// While it waits for it, its collective of this generation.
    std::size_t collective = 0;
    int next_object = 0;
    /// The result of the last collective, and the weights from which it was computed.
    std::uint64_t reduced = 0;
    std::uint64_t base = 0;
    std::uint64_t committed = 0;
    std::vector<Revoked> revoked = {};
    std::vector<PlanNotice> plans = {};
    std::vector<Report> reports = {};
  };
  struct Contribution {
    bool made = false;
    std::uint64_t step = 0;
    std::uint64_t weights = 0;
    std::uint64_t value = 0;
  };
  struct Group {
    RecoveryPlan plan;
    std::vector<int> joined;
    /// By number, then by rank.
    std::vector<std::vector<Contribution>> collectives;
    std::vector<std::optional<State>> transfers;
  };
  struct Node {
    std::vector<Command> commands;
    std::vector<RankProcess> ended;
    bool lost = false;
  };

  int size() const { return static_cast<int>(options_.nodes.size()); }
  Group& group(const Process& process) { return groups_.at(process.member.generation()); }
  const Group& group(const Process& process) const { return groups_.at(process.member.generation()); }
  int current(const RankProcess& process) const;
  /// Whether its node is lost. Nobody can know what it does.
  bool is_cut_off(const Process& process) const {
    return nodes_[static_cast<std::size_t>(process.node)].lost;
  }
  /// The node that has that number for the planner, and its index.
  int place_of(int number) const { return places_[static_cast<std::size_t>(number)]; }
  Node& node(int number) { return nodes_[static_cast<std::size_t>(place_of(number))]; }
  void lose_node(int index);
  /// The planner's number of it; none if another one has taken its place.
  std::optional<int> number_of(int index) const;
  bool is_leaving(const Process& process) const { return process.node == leaving_; }
  bool in_collective(const Process& process) const;
  bool has_entered(const Process& process) const;
  bool has_lost_peer(const Process& process) const;
  bool can_run(const Process& process) const;
  bool is_local(const Process& process) const;
  /// A spare that has no part in the training yet.
  bool is_waiting_spare(const Process& process) const {
    return process.is_spare && !calls_.contains(process.member.self());
  }
  void start(const RankProcess& self, int node, std::optional<Generation> generation);
  void drop_stale();
  void apply_one(const Choice& choice);
  void run(int index);
  void contribute(int index);
  void carry_out(int index, const MemberActions& actions);
  void carry_out(const PlannerActions& actions);
  void hear_report(int index);
  void execute_command(int index);
  void end(int index);
  void check_commit(Process& process);
  void violate(const std::string& invariant, const std::string& details);

  WorldOptions options_;
  RecoveryPlanner planner_;
  RecoveryPlanner::Time now_{};
  std::vector<Process> processes_;
  std::vector<Node> nodes_;
  /// By the planner's numbers. A node that takes the place of a lost one takes its number.
  std::vector<int> places_;
  int waiting_nodes_ = 0;
  int leaving_ = -1;
  int lost_with_nodes_ = 0;
  std::map<Generation, Group> groups_;
  /// The weights of the undisturbed run after each step.
  std::vector<std::uint64_t> reference_;
  std::optional<std::uint64_t> checkpoint_;
  /// The keys by which spares hear of their generation.
  std::map<RankProcess, Generation> calls_;
  std::optional<std::string> verdict_;
  std::optional<Violation> violation_;
  int crashes_ = 0;
  bool hurried_ = false;
  bool finish_confirmed_ = false;
};

}  // namespace lockstep::elastic
