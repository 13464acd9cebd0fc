#pragma once

#include <ATen/ops/ones.h>

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::testing {

/// Two things that ranks may call, of which some call one while the others call another.
struct Disagreement {
  std::function<void(const ProcessGroup&)> one;
  std::function<void(const ProcessGroup&)> another;
};

inline void sum_of(const ProcessGroup& group, std::int64_t count, at::ScalarType dtype = at::kFloat,
                   ReduceOp op = ReduceOp::sum) {
  group.all_reduce(at::ones({count}, dtype), op);
}

/// As gradients go: all are started before one is waited for.
inline void start_sums_of(const ProcessGroup& group, const std::vector<std::int64_t>& counts) {
  std::vector<Work> works;
  for (const auto count : counts) works.push_back(group.all_reduce_async(at::ones({count})));
  for (auto& work : works) work.wait();
}

inline std::map<std::string, Disagreement> every_disagreement() {
  const auto sum = [](auto... what) { return [=](const ProcessGroup& group) { sum_of(group, what...); }; };
  const auto from = [](int root) { return [=](const auto& group) { group.broadcast(at::ones({4}), root); }; };
  const auto gather = [](std::int64_t count) {
    return [=](const auto& group) { group.gather(at::ones({count})); };
  };
  const auto sums = [](const std::vector<std::int64_t>& counts) {
    return [=](const auto& group) { start_sums_of(group, counts); };
  };
  return {{"size", {sum(1000), sum(2000)}},
          {"large_size", {sum(1000), sum(1'000'000)}},
          {"dtype", {sum(4), sum(4, at::kInt)}},
          {"reduction", {sum(4), sum(4, at::kFloat, ReduceOp::max)}},
          {"operation", {sum(4), from(0)}},
          {"root", {from(0), from(1)}},
          {"gathered", {gather(3), gather(4)}},
          {"gather", {sum(4), gather(4)}},
          {"order_of_starts", {sums({100'000, 200, 300}), sums({100'000, 300, 200})}}};
}

/// When all ranks have done both, `is_odd` ones do another. Throws the error that they get, unless that takes
/// long.
inline void disagree(const ProcessGroup& group, const std::string& what, bool is_odd) {
  const Disagreement both = every_disagreement().at(what);
  both.one(group);
  both.another(group);
  const auto begun = std::chrono::steady_clock::now();
  try {
    (is_odd ? both.another : both.one)(group);
    (is_odd ? both.one : both.another)(group);
  } catch (const CommunicationError& error) {
    if (std::chrono::steady_clock::now() - begun < std::chrono::seconds(10)) throw;
    throw Error(std::string("it took long to find that ") + error.what());
  }
}

}  // namespace lockstep::testing
