#include "run_once_per_node.hpp"

namespace lockstep {
namespace {

class NodeWork {
 public:
  NodeWork(StoreSession& session, int node)
      : session_(session), prefix_("node/" + std::to_string(node) + "/") {}

  void publish(const std::string& name, const std::string& value) const {
    session_.store().set(key(name), value);
  }

  std::string wait() const {
    session_.wait_until(
        [&] { return has("result"); },
        [&] {
          return "for local rank 0 of this node" +
                 (has("progress") ? ": " + value("progress") : std::string());
        },
        [&] { return has("rank") ? std::vector<int>{std::stoi(value("rank"))} : std::vector<int>(); });
    return value("result");
  }

 private:
  std::string key(const std::string& name) const { return session_.key(prefix_ + name); }
  bool has(const std::string& name) const { return session_.store().contains(key(name)); }
  std::string value(const std::string& name) const { return session_.store().get(key(name)); }

  StoreSession& session_;
  std::string prefix_;
};

/// So that what fails on one node fails everywhere.
void wait_for_all(StoreSession& session) {
  const auto done = [&](int more) { return session.store().add(session.key("done"), more); };
  done(1);
  session.wait_until([&] { return done(0) == session.ranks().size; },
                     [&] {
                       return "for the other nodes: " + std::to_string(done(0)) + " of " +
                              std::to_string(session.ranks().size) + " ranks are done";
                     },
                     [] { return std::vector<int>{}; });
}

}  // namespace

std::string run_once_per_node(
    const DistributedContext& ranks, const std::string& what,
    const std::function<std::string(const std::function<void(const std::string&)>&)>& work,
    StoreSessionOptions options) {
  StoreSession session(ranks, what, options);
  const NodeWork node(session, ranks.node);
  try {
    std::string result;
    if (ranks.local_rank == 0) {
      node.publish("rank", std::to_string(ranks.rank));
      result = work([&](const std::string& text) { node.publish("progress", text); });
      node.publish("result", result);
    } else {
      result = node.wait();
    }
    wait_for_all(session);
    session.leave();
    return result;
  } catch (const std::exception& error) {
    session.fail(error.what());
    throw;
  }
}

}  // namespace lockstep
