#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "rendezvous/coordinator.hpp"

namespace lockstep::launch {

/// A coordinator with nodes that are only names: what it sends is kept, and the clock is moved by hand.
class CoordinatorHarness : public CoordinatorActions {
 public:
  explicit CoordinatorHarness(CoordinatorOptions options)
      : coordinator(with_analysis(std::move(options)), *this, now) {}

  void send(NodeId node, const CoordinatorMessage& message) override { sent[node].push_back(message); }
  void dismiss(NodeId node) override { dismissed.push_back(node); }
  void begin_round(int) override { ++rounds; }

  NodeInfo info(const std::string& host, const CoordinatorOptions& options, int ranks = 1) const {
    NodeInfo node;
    node.run_id = options.run_id;
    node.host = host;
    node.pid = 1;
    node.min_nodes = options.min_nodes;
    node.max_nodes = options.max_nodes;
    node.local_world_size = ranks;
    return node;
  }

  void receive(NodeId node, const NodeMessage& message) { coordinator.on_message(node, message, now); }
  void ended(NodeId node, int round, bool ok) { receive(node, RoundEnded{.round = round, .ok = ok}); }
  /// A rank that ends with 3; `own`: for a reason of its own.
  static ProcessFailure failure(int rank, bool own = true) {
    ProcessFailure failure;
    failure.rank = rank;
    failure.status = 3 << 8;
    failure.message = own ? "own" : "";
    failure.error = "e" + std::to_string(rank);
    return failure;
  }
  void failed(NodeId node, int round, int rank, bool own = true) {
    receive(node, RankFailed{round, failure(rank, own)});
  }
  void pass(std::chrono::milliseconds time) {
    now += time;
    coordinator.on_timer(now);
  }

  /// The messages of that type that the node got.
  template <class Message>
  std::vector<Message> got(NodeId node) const {
    std::vector<Message> result;
    const auto found = sent.find(node);
    if (found == sent.end()) return result;
    for (const auto& message : found->second) {
      if (const auto* wanted = std::get_if<Message>(&message)) result.push_back(*wanted);
    }
    return result;
  }
  /// All lines for people that the node got, one after the other.
  std::string words(NodeId node) const {
    std::string result;
    for (const auto& notice : got<Notice>(node)) result += notice.text + "\n";
    for (const auto& report : got<Report>(node)) result += report.text + "\n";
    for (const auto& reject : got<Reject>(node)) result += reject.text + "\n";
    return result;
  }

  Coordinator::Time now{std::chrono::hours(1)};
  std::map<NodeId, std::vector<CoordinatorMessage>> sent;
  std::vector<NodeId> dismissed;
  int rounds = 0;
  Coordinator coordinator;

 private:
  /// The first failure that has a cause of its own, else the first.
  static CoordinatorOptions with_analysis(CoordinatorOptions options) {
    options.analyze = [](const std::vector<ProcessFailure>& failures) {
      const auto own = std::find_if(failures.begin(), failures.end(),
                                    [](const ProcessFailure& failure) { return failure.message == "own"; });
      const ProcessFailure& cause = own == failures.end() ? failures.front() : *own;
      FailureSummary summary;
      summary.headline = "FAILED: rank " + std::to_string(cause.rank);
      summary.report = summary.headline + " with all its details";
      summary.exit_code = cause.status.value_or(0) >> 8;
      summary.has_own_cause = own != failures.end();
      summary.preempted = summary.exit_code == 85;
      summary.error = cause.error;
      return summary;
    };
    return options;
  }
};

}  // namespace lockstep::launch
