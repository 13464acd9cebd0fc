#include "rendezvous/rank_assignment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>

namespace lockstep::launch {
namespace {

bool comes_first(const Node* a, const Node* b) {
  const auto key = [](const Node* node) {
    constexpr int kLast = 1 << 30;
    return std::tuple(node->info.node_rank.value_or(kLast), node->group_rank.value_or(kLast), node->id != 0);
  };
  if (key(a) != key(b)) return key(a) < key(b);
  // "node9" before "node10".
  if (const int hosts = strverscmp(a->info.host.c_str(), b->info.host.c_str()); hosts != 0) return hosts < 0;
  return std::tuple(a->info.pid, a->id) < std::tuple(b->info.pid, b->id);
}

}  // namespace

std::string nodes_text(int count) { return fmt::format("{} {}", count, count == 1 ? "node" : "nodes"); }

std::string range_text(int least, int most) {
  return least == most ? fmt::to_string(least) : fmt::format("{}:{}", least, most);
}

std::string first_and_last(const std::vector<std::string>& items) {
  constexpr std::size_t kMost = 16;
  if (items.size() <= kMost) return fmt::format("{}", fmt::join(items, ", "));
  return fmt::format("{}, ({} more), {}", fmt::join(items.begin(), items.begin() + kMost - 1, ", "),
                     items.size() - kMost, items.back());
}

std::vector<Node*> candidates(std::vector<Node>& nodes, int max_nodes) {
  std::vector<Node*> result;
  for (auto& node : nodes) {
    if (node.drain_signal == 0) result.push_back(&node);
  }
  // Nodes of the last round have priority; the others follow in the order in which they joined.
  std::ranges::stable_partition(result, [](const Node* node) { return node->group_rank.has_value(); });
  if (result.size() > static_cast<std::size_t>(max_nodes)) result.resize(static_cast<std::size_t>(max_nodes));
  std::ranges::sort(result, comes_first);
  return result;
}

std::vector<Assignment> assign_ranks(const std::vector<Node*>& order) {
  std::vector<Assignment> result;
  std::map<std::string, int> role_sizes;
  int next = 0;
  for (const Node* node : order) {
    Assignment assignment;
    assignment.group_rank = static_cast<int>(result.size());
    assignment.group_world_size = static_cast<int>(order.size());
    assignment.first_rank = next;
    assignment.first_role_rank = role_sizes[node->info.role];
    next += node->info.local_world_size;
    role_sizes[node->info.role] += node->info.local_world_size;
    result.push_back(assignment);
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    result[i].world_size = next;
    result[i].role_world_size = role_sizes[order[i]->info.role];
  }
  return result;
}

std::string rank_map(const std::vector<Node*>& order, const std::vector<Assignment>& assignments) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const int first = assignments[i].first_rank;
    const int last = first + order[i]->info.local_world_size - 1;
    const std::string ranks =
        first == last ? fmt::format("rank {}", first) : fmt::format("ranks {}-{}", first, last);
    parts.push_back(fmt::format("node {} = {} ({})", i, order[i]->info.host, ranks));
  }
  return first_and_last(parts);
}

}  // namespace lockstep::launch
