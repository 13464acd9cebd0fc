#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "recovery/recovery_schedules.hpp"
#include "rendezvous/coordinator.hpp"

namespace lockstep::elastic {
namespace {

using launch::CoordinatorMessage;
using launch::NodeId;
using launch::NodeMessage;

constexpr int kMostJobEvents = 50'000;

/// A whole job: the real Coordinator, and in each of its rounds a World. What the planner cannot recover
/// becomes a failure of the round, as it will be in the coordinator's own hands.
class SimulatedJob : public launch::CoordinatorActions {
 public:
  SimulatedJob(std::uint64_t seed, ScheduleCounts& counts)
      : random_(seed),
        counts_(counts),
        world_options_(world_of(random_)),
        coordinator_(make_options(), *this, now_) {
    const int hosts = 1 + world_options_.nodes.back();
    hosts_.resize(static_cast<std::size_t>(hosts));
    for (int host = 0; host < hosts; ++host) join(host);
    faults_left_ = static_cast<int>(random_() % 5);
    fault_rate_ = random_() % 2 == 0 ? 0.02 : 0.2;
  }

  /// The violation; empty: none.
  std::string run() {
    int events = 0;
    while (violation_.empty() && !is_over()) {
      if (++events == kMostJobEvents) fail("stuck: the job goes round in circles");
      step();
    }
    if (violation_.empty()) check_end();
    ++counts_.schedules;
    counts_.events += static_cast<std::uint64_t>(events);
    counts_.restarts += static_cast<std::uint64_t>(std::max(round_ - 1, 0));
    end_world();
    return violation_;
  }

  void send(NodeId node, const CoordinatorMessage& message) override {
    for (Host& host : hosts_) {
      if (host.id == node) host.inbox.push_back(message);
    }
  }
  void dismiss(NodeId node) override {
    for (Host& host : hosts_) {
      if (host.id == node) host.id = -1;
    }
  }
  void begin_round(int round) override {
    end_world();
    round_ = round;
    started_ = 0;
  }

 private:
  struct Host {
    NodeId id = -1;
    std::vector<CoordinatorMessage> inbox;
    std::vector<NodeMessage> outbox;
    /// Its number in the world of this round; -1: none yet.
    int node = -1;
    bool runs = false;
    std::optional<int> exit_code;
    std::string words;
  };

  launch::CoordinatorOptions make_options() {
    launch::CoordinatorOptions options;
    options.min_nodes = options.max_nodes = 1 + world_options_.nodes.back();
    options.max_restarts = static_cast<int>(random_() % 3);
    options.keep_alive_timeout = std::chrono::hours(1000);
    options.analyze = [](const std::vector<launch::ProcessFailure>& failures) {
      launch::FailureSummary summary;
      summary.report = summary.headline = failures.front().message;
      summary.has_own_cause = true;
      return summary;
    };
    return options;
  }

  void join(int index) {
    Host& host = hosts_[static_cast<std::size_t>(index)];
    host = {};
    host.id = next_id_++;
    launch::NodeInfo info;
    info.run_id = "none";
    info.host = fmt::format("host{}", index);
    info.pid = host.id + 1;
    info.min_nodes = info.max_nodes = static_cast<int>(hosts_.size());
    info.local_world_size = static_cast<int>(std::ranges::count(world_options_.nodes, index));
    coordinator_.on_join(host.id, info, now_);
  }

  bool is_over() const {
    return std::ranges::all_of(hosts_, [](const Host& host) { return host.exit_code.has_value(); });
  }

  void step() {
    std::vector<std::function<void()>> possible;
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      Host& host = hosts_[i];
      if (host.exit_code) continue;
      if (host.id < 0) possible.emplace_back([this, i] { join(static_cast<int>(i)); });
      if (!host.inbox.empty()) possible.emplace_back([this, &host] { receive(host); });
      if (!host.outbox.empty()) {
        possible.emplace_back([this, &host] {
          const NodeMessage message = host.outbox.front();
          host.outbox.erase(host.outbox.begin());
          coordinator_.on_message(host.id, message, now_);
        });
      }
    }
    if (world_) {
      std::vector<Choice> choices = world_->choices();
      // The coordinator lives on node 0: its loss is that of the job.
      std::erase_if(choices,
                    [](const Choice& c) { return c.kind == Choice::Kind::lose_node && c.index == 0; });
      const Choice choice = choose(choices, faults_left_, fault_rate_, random_);
      if (choice.index >= 0 && (possible.empty() || random_() % 4 != 0)) return apply(choice);
    }
    if (!possible.empty()) return possible[random_() % possible.size()]();
    if (coordinator_.deadline() == launch::Coordinator::Time::max()) return fail("stuck: nothing can happen");
    now_ = std::max(now_, coordinator_.deadline());
    coordinator_.on_timer(now_);
  }

  void apply(const Choice& choice) {
    path_ += choice.describe() + ", ";
    const bool had_verdict = world_->verdict().has_value();
    if (choice.is_fault()) {
      --faults_left_;
      ++counts_.faults;
    }
    world_->apply(choice);
    if (world_->violation())
      return fail(world_->violation()->invariant + ": " + world_->violation()->details);
    Host* const lost = choice.kind == Choice::Kind::lose_node ? host_of(choice.index) : nullptr;
    if (lost != nullptr) {
      const NodeId id = std::exchange(lost->id, -1);
      lost->inbox.clear();
      lost->outbox.clear();
      lost->runs = false;
      any_loss_ = true;
      coordinator_.on_disconnect(id, "closed its connection", now_);
    } else if (world_->verdict() && !had_verdict) {
      any_verdict_ = true;
      launch::ProcessFailure failure;
      failure.message = *world_->verdict();
      for (Host& host : hosts_) {
        if (!host.runs) continue;
        host.outbox.emplace_back(launch::RankFailed{round_, failure});
        break;
      }
    }
    if (!world_) return;
    for (Host& host : hosts_) {
      if (!host.runs || !world_->has_left(host.node) || world_->verdict()) continue;
      host.runs = false;
      host.outbox.emplace_back(launch::RoundEnded{.round = round_, .ok = true});
    }
  }

  Host* host_of(int node) {
    const auto found = std::ranges::find(hosts_, node, &Host::node);
    return found == hosts_.end() ? nullptr : &*found;
  }

  void receive(Host& host) {
    const CoordinatorMessage message = host.inbox.front();
    host.inbox.erase(host.inbox.begin());
    std::visit(launch::Overloaded{[&](const launch::Assignment& assignment) { start(host, assignment); },
                                  [&](const launch::StopRound& stop) { this->stop(host, stop.round); },
                                  [&](const launch::Report& report) { host.words += report.text; },
                                  [&](const launch::Reject& reject) {
                                    host.words += reject.text;
                                    host.exit_code = 1;
                                    host.id = -1;
                                  },
                                  [&](const launch::Finish& finish) {
                                    host.exit_code = finish.exit_code;
                                    coordinator_.on_disconnect(std::exchange(host.id, -1), "left", now_);
                                  },
                                  [](const auto&) {}},
               message);
  }

  /// The world begins when every node has started its ranks.
  void start(Host& host, const launch::Assignment& assignment) {
    if (assignment.round != round_) return;
    host.node = assignment.group_rank;
    host.runs = true;
    if (++started_ < assignment.group_world_size) return;
    WorldOptions options = world_options_;
    for (const Host& other : hosts_) {
      if (other.id < 0 || !other.runs) return;
    }
    // Ranks of a node are consecutive. The order of the nodes may differ from that of the last round.
    options.nodes.clear();
    for (int node = 0; node < assignment.group_world_size; ++node) {
      const Host* const placed = host_of(node);
      if (placed == nullptr) return fail("stuck: two nodes have the same number");
      const auto ranks = std::ranges::count(world_options_.nodes, static_cast<int>(placed - hosts_.data()));
      options.nodes.insert(options.nodes.end(), static_cast<std::size_t>(ranks), node);
    }
    options.first_step = checkpoint_;
    // A lost node ends the round here.
    options.spare_nodes = 0;
    world_ = std::make_unique<World>(options);
  }

  void stop(Host& host, int round) {
    if (round != round_ || !host.runs) return;
    host.runs = false;
    if (world_) world_->stop_node(host.node);
    launch::ProcessFailure failure;
    failure.message = world_ ? world_->verdict().value_or("was stopped") : "was stopped";
    host.outbox.emplace_back(launch::RoundEnded{.round = round, .ok = false, .failures = {failure}});
  }

  void end_world() {
    if (!world_) return;
    counts_.recoveries += static_cast<std::uint64_t>(world_->planner().recoveries());
    counts_.called += static_cast<std::uint64_t>(world_->called());
    checkpoint_ = std::max(checkpoint_, world_->newest_checkpoint());
    succeeded_ = world_->has_succeeded() && !world_->verdict();
    world_.reset();
  }

  void check_end() {
    end_world();
    const int exit_code = hosts_.front().exit_code.value_or(-1);
    ++(exit_code == 0 ? counts_.succeeded : counts_.given_up);
    if ((exit_code == 0) != succeeded_)
      fail(fmt::format("end: exit code {}, succeeded {}", exit_code, succeeded_));
    if (round_ > 1 && !any_verdict_ && !any_loss_) fail("survivors: restarted without a reason");
    if (exit_code != 0 && hosts_.front().words.empty()) fail("end: the job failed without a reason");
  }

  void fail(const std::string& what) {
    if (violation_.empty()) violation_ = what + "\n" + path_;
  }

  std::mt19937_64 random_;
  ScheduleCounts& counts_;
  WorldOptions world_options_;
  launch::Coordinator::Time now_{std::chrono::hours(1)};
  std::vector<Host> hosts_;
  std::unique_ptr<World> world_;
  NodeId next_id_ = 0;
  int round_ = 0;
  int started_ = 0;
  int faults_left_ = 0;
  double fault_rate_ = 0;
  std::uint64_t checkpoint_ = 0;
  bool any_verdict_ = false;
  bool any_loss_ = false;
  bool succeeded_ = false;
  std::string violation_;
  std::string path_;
  launch::Coordinator coordinator_;
};

}  // namespace

ScheduleCounts run_jobs(std::uint64_t first, std::uint64_t schedules) {
  ScheduleCounts counts;
  for (std::uint64_t seed = first; seed < first + schedules && counts.violation.empty(); ++seed) {
    const std::string violation = SimulatedJob(seed, counts).run();
    if (!violation.empty()) counts.violation = fmt::format("seed {}: {}", seed, violation);
  }
  return counts;
}

}  // namespace lockstep::elastic
