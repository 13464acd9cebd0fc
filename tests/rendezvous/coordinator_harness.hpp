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
      : coordinator(with_judge(std::move(options)), *this, now) {}

  void send(NodeId node, const Json& message) override { sent[node].push_back(message); }
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

  void hear(NodeId node, const Json& message) { coordinator.on_message(node, message, now); }
  void ended(NodeId node, int round, bool ok) {
    hear(node, {{"type", "ended"}, {"round", round}, {"ok", ok}});
  }
  void failed(NodeId node, int round, int rank, bool own = true) {
    hear(node, {{"type", "failed"},
                {"round", round},
                {"record",
                 {{"rank", rank}, {"exit_code", 3}, {"own", own}, {"error", "e" + std::to_string(rank)}}}});
  }
  void pass(std::chrono::milliseconds time) {
    now += time;
    coordinator.on_timer(now);
  }

  /// The messages of that type that the node got.
  std::vector<Json> got(NodeId node, const std::string& type) const {
    std::vector<Json> result;
    const auto found = sent.find(node);
    if (found == sent.end()) return result;
    std::copy_if(found->second.begin(), found->second.end(), std::back_inserter(result),
                 [&](const Json& message) { return type_of(message) == type; });
    return result;
  }
  /// All lines for people that the node got, one after the other.
  std::string words(NodeId node) const {
    std::string result;
    for (const char* type : {"text", "report", "reject"}) {
      for (const auto& message : got(node, type)) result += message["text"].get<std::string>() + "\n";
    }
    return result;
  }

  std::chrono::steady_clock::time_point now{std::chrono::hours(1)};
  std::map<NodeId, std::vector<Json>> sent;
  std::vector<NodeId> dismissed;
  int rounds = 0;
  Coordinator coordinator;

 private:
  /// The first record that has a cause of its own, else the first.
  static CoordinatorOptions with_judge(CoordinatorOptions options) {
    options.judge = [](const std::vector<Json>& records) {
      const auto own =
          std::find_if(records.begin(), records.end(), [](const Json& r) { return r.value("own", true); });
      const Json& cause = own == records.end() ? records.front() : *own;
      FailureSummary verdict;
      verdict.headline = "FAILED: rank " + cause["rank"].dump();
      verdict.report = verdict.headline + " with all its details";
      verdict.exit_code = cause["exit_code"].get<int>();
      verdict.has_own_cause = own != records.end();
      verdict.preempted = verdict.exit_code == 85;
      verdict.error = cause.value("error", Json());
      return verdict;
    };
    return options;
  }
};

}  // namespace lockstep::launch
