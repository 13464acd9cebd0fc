#include "optim/greedy_partition.hpp"

#include <algorithm>
#include <numeric>

namespace lockstep::optim {
namespace {

std::vector<std::size_t> largest_first(const std::vector<std::int64_t>& elements) {
  std::vector<std::size_t> order(elements.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t one, std::size_t other) { return elements[one] > elements[other]; });
  return order;
}

}  // namespace

std::vector<std::vector<int>> greedy_partition(const std::vector<std::vector<std::int64_t>>& elements,
                                               int ranks) {
  std::vector<std::int64_t> loads(static_cast<std::size_t>(ranks), 0);
  std::vector<std::vector<int>> owners;
  for (const auto& group : elements) {
    auto& owner = owners.emplace_back(group.size());
    for (const auto i : largest_first(group)) {
      const auto least = std::min_element(loads.begin(), loads.end());
      owner[i] = static_cast<int>(least - loads.begin());
      *least += group[i];
    }
  }
  return owners;
}

}  // namespace lockstep::optim
