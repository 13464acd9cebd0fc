#include "datasets/distributed/run_once_per_node.hpp"

#include <fmt/core.h>

#include <vector>

namespace lockstep {

std::string run_once_per_node(
    const DistributedContext& ranks, const std::string& what,
    const std::function<std::string(const std::function<void(const std::string&)>&)>& work,
    coordination::WaitTimes times) {
  WorkSession session(ranks, what, times);
  auto& store = session.store();
  const auto key = [&](const char* name) { return session.key(fmt::format("node/{}/{}", ranks.node, name)); };
  const auto value = [&](const char* name) {
    return store.contains(key(name)) ? store.get(key(name)) : std::string();
  };
  const auto awaited = [&] {
    // The next rank, too: the ranks of its node may all be dead.
    std::vector<int> others{(ranks.rank + 1) % ranks.size};
    if (const auto worker = value("rank"); !worker.empty()) others.push_back(std::stoi(worker));
    return others;
  };
  return session.run([&] {
    std::string result;
    if (ranks.local_rank == 0) {
      store.set(key("rank"), std::to_string(ranks.rank));
      result = work([&](const std::string& text) { store.set(key("progress"), text); });
      store.set(key("result"), result);
    } else {
      session.wait_until([&] { return store.contains(key("result")); },
                         [&] {
                           const auto progress = value("progress");
                           return "for local rank 0 of this node" + (progress.empty() ? "" : ": " + progress);
                         },
                         awaited);
      result = store.get(key("result"));
    }
    // A failure on one node is an error on all.
    session.arrive("done");
    session.await_all("done", "the other nodes");
    return result;
  });
}

}  // namespace lockstep
