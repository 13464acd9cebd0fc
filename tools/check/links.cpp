#include <ATen/ops/zeros.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>

#include "checks.hpp"

namespace check {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kAllPairsUpTo = 8;
constexpr std::int64_t kSmall = 8;
constexpr std::int64_t kLarge = 4 << 20;

/// Between two ranks: seconds one way, and bytes a second.
struct Link {
  int first = 0;
  int second = 0;
  double latency = 0;
  double bandwidth = 0;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// There and back, `rounds` times; the median of one way.
double one_way(const lockstep::ProcessGroup& group, const Link& link, std::int64_t bytes, int rounds) {
  const at::Tensor tensor = at::zeros({bytes}, at::TensorOptions(at::kByte).device(group.device()));
  const bool leads = group.rank() == link.first;
  const int other = leads ? link.second : link.first;
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

/// Measured by its two ranks, and known to all. The others wait, so that links do not disturb each other.
Link measured(const lockstep::ProcessGroup& group, int first, int second) {
  Link link{first, second};
  if (group.rank() == first || group.rank() == second) {
    link.latency = one_way(group, link, kSmall, 30);
    link.bandwidth = static_cast<double>(kLarge) / one_way(group, link, kLarge, 5);
  }
  const auto numbers = group.broadcast_object(nlohmann::json{link.latency, link.bandwidth}, first);
  return {first, second, numbers.at(0).get<double>(), numbers.at(1).get<double>()};
}

std::vector<double> all_of(const std::vector<Link>& links, double Link::*number) {
  std::vector<double> numbers;
  for (const auto& link : links) numbers.push_back(link.*number);
  return numbers;
}

bool is_slow(const Link& link, const std::vector<Link>& all) {
  if (all.size() < 3) return false;
  return link.bandwidth < median(all_of(all, &Link::bandwidth)) / 2 ||
         link.latency > median(all_of(all, &Link::latency)) * 3;
}

std::string formatted(double number, const char* unit) {
  const int decimals = number < 10 ? 2 : number < 100 ? 1 : 0;
  return fmt::format("{:.{}f} {}", number, decimals, unit);
}

}  // namespace

std::string link_table(const lockstep::ProcessGroup& group, const std::vector<int>& nodes_of_ranks) {
  const std::vector<int> ranks = ends(group.size(), nodes_of_ranks);
  std::vector<Link> links;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    for (std::size_t j = i + 1; j < ranks.size(); ++j) links.push_back(measured(group, ranks[i], ranks[j]));
  }
  std::string text = fmt::format("  {:>11}  {:>8}  {:>9}\n", "ranks", "latency", "bandwidth");
  for (const auto& link : links) {
    text += fmt::format("  {:>11}  {:>8}  {:>9}{}\n", fmt::format("{} - {}", link.first, link.second),
                        time_text(link.latency), bandwidth_text(link.bandwidth),
                        is_slow(link, links) ? "  SLOW" : "");
  }
  return text;
}

std::string time_text(double seconds) {
  if (seconds < 1e-3) return formatted(seconds * 1e6, "us");
  return seconds < 1 ? formatted(seconds * 1e3, "ms") : formatted(seconds, "s");
}

std::string bandwidth_text(double bytes_per_second) {
  return bytes_per_second < 1e9 ? formatted(bytes_per_second / 1e6, "MB/s")
                                : formatted(bytes_per_second / 1e9, "GB/s");
}

}  // namespace check
