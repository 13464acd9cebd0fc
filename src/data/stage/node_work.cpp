#include "node_work.hpp"

namespace lockstep {
namespace {

class NodeWork {
 public:
  NodeWork(Meeting& meeting, int node) : meeting_(meeting), prefix_("node/" + std::to_string(node) + "/") {}

  void publish(const std::string& name, const std::string& value) const {
    meeting_.store().set(key(name), value);
  }

  std::string wait() const {
    meeting_.wait_until(
        [&] { return has("result"); },
        [&] {
          return "for local rank 0 of this node" +
                 (has("progress") ? ": " + value("progress") : std::string());
        },
        [&] { return has("rank") ? std::vector<int>{std::stoi(value("rank"))} : std::vector<int>(); });
    return value("result");
  }

 private:
  std::string key(const std::string& name) const { return meeting_.key(prefix_ + name); }
  bool has(const std::string& name) const { return meeting_.store().contains(key(name)); }
  std::string value(const std::string& name) const { return meeting_.store().get(key(name)); }

  Meeting& meeting_;
  std::string prefix_;
};

/// So that what fails on one node fails everywhere.
void wait_for_all(Meeting& meeting) {
  const auto done = [&](int more) { return meeting.store().add(meeting.key("done"), more); };
  done(1);
  meeting.wait_until([&] { return done(0) == meeting.ranks().size; },
                     [&] {
                       return "for the other nodes: " + std::to_string(done(0)) + " of " +
                              std::to_string(meeting.ranks().size) + " ranks are done";
                     },
                     [] { return std::vector<int>{}; });
}

}  // namespace

std::string once_a_node(
    const JobRanks& ranks, const std::string& what,
    const std::function<std::string(const std::function<void(const std::string&)>&)>& work,
    MeetingOptions options) {
  Meeting meeting(ranks, what, options);
  const NodeWork node(meeting, ranks.node);
  try {
    std::string result;
    if (ranks.local_rank == 0) {
      node.publish("rank", std::to_string(ranks.rank));
      result = work([&](const std::string& text) { node.publish("progress", text); });
      node.publish("result", result);
    } else {
      result = node.wait();
    }
    wait_for_all(meeting);
    meeting.leave();
    return result;
  } catch (const std::exception& error) {
    meeting.fail(error.what());
    throw;
  }
}

}  // namespace lockstep
