#include "links.hpp"

#include <ATen/ops/zeros.h>

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>

#include "table.hpp"

namespace check {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kAllPairsUpTo = 8;
constexpr std::int64_t kSmall = 8;
constexpr std::int64_t kLarge = 4 << 20;

/// There and back, `rounds` times; the median of one way.
double one_way(const lockstep::ProcessGroup& group, int first, int second, std::int64_t bytes, int rounds) {
  const at::Tensor tensor = at::zeros({bytes}, at::TensorOptions(at::kByte).device(group.device()));
  const bool leads = group.rank() == first;
  const int other = leads ? second : first;
  std::vector<double> times;
  for (int round = 0; round <= rounds; ++round) {
    const auto start = Clock::now();
    if (leads) group.send(tensor, other);
    group.recv(tensor, other);
    if (!leads) group.send(tensor, other);
    static_cast<void>(tensor[0].item());
    // The first one sets up the connection.
    if (round > 0) times.push_back(std::chrono::duration<double>(Clock::now() - start).count() / 2);
  }
  return median(times);
}

/// Ranks between which links are measured.
std::vector<int> ends(int size, const std::vector<int>& nodes_of_ranks) {
  std::map<int, int> first_of_node;
  std::vector<int> all;
  for (int rank = 0; rank < size; ++rank) {
    first_of_node.emplace(nodes_of_ranks[static_cast<std::size_t>(rank)], rank);
    all.push_back(rank);
  }
  if (size <= kAllPairsUpTo) return all;
  std::vector<int> firsts;
  for (const auto& [node, rank] : first_of_node) firsts.push_back(rank);
  return firsts;
}

Link measured(const lockstep::ProcessGroup& group, int first, int second) {
  Link link{first, second};
  if (group.rank() != first && group.rank() != second) return link;
  link.latency = one_way(group, first, second, kSmall, 30);
  link.bandwidth = static_cast<double>(kLarge) / one_way(group, first, second, kLarge, 5);
  return link;
}

/// The numbers of the rank that measured, at every rank.
void share(const lockstep::ProcessGroup& group, Link& link) {
  const auto numbers = group.broadcast_object(nlohmann::json{link.latency, link.bandwidth}, link.first);
  link.latency = numbers.at(0).get<double>();
  link.bandwidth = numbers.at(1).get<double>();
}

}  // namespace

std::vector<Link> measure_links(const lockstep::ProcessGroup& group, const std::vector<int>& nodes_of_ranks) {
  const std::vector<int> ranks = ends(group.size(), nodes_of_ranks);
  std::vector<Link> links;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    for (std::size_t j = i + 1; j < ranks.size(); ++j) {
      links.push_back(measured(group, ranks[i], ranks[j]));
      // The others wait here, so that links do not disturb each other.
      share(group, links.back());
    }
  }
  return links;
}

bool is_slow(const Link& link, const std::vector<Link>& all) {
  if (all.size() < 3) return false;
  std::vector<double> latencies;
  std::vector<double> bandwidths;
  for (const auto& other : all) {
    latencies.push_back(other.latency);
    bandwidths.push_back(other.bandwidth);
  }
  return link.bandwidth < median(bandwidths) / 2 || link.latency > median(latencies) * 3;
}

std::string links_text(const std::vector<Link>& links) {
  Table table({"ranks", "latency", "bandwidth", ""});
  for (const auto& link : links) {
    table.add({std::to_string(link.first) + " - " + std::to_string(link.second), time_text(link.latency),
               bandwidth_text(link.bandwidth), is_slow(link, links) ? "SLOW" : ""});
  }
  return table.text();
}

}  // namespace check
