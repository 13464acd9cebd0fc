// Ranks that leave, hang or do something else while others are in a collective.
#include <torch/types.h>

#include <csignal>
#include <functional>
#include <iostream>
#include <map>
#include <thread>

#include "lockstep/comm/process_group.hpp"
#include "lockstep/comm/trace.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/heartbeat.hpp"
#include "probe.hpp"
#include "support/every_collective.hpp"

namespace probe {
namespace {

using lockstep::ProcessGroup;

/// Rank 1 does it, and the others something else.
struct Disagreement {
  std::function<void(const ProcessGroup&)> odd;
  std::function<void(const ProcessGroup&)> others;
};

void sum(const ProcessGroup& group, std::int64_t count, at::ScalarType dtype = at::kFloat) {
  group.all_reduce(torch::ones({count}, dtype));
}

const std::map<std::string, Disagreement> kDisagreements{
    {"size", {[](const auto& group) { sum(group, 8); }, [](const auto& group) { sum(group, 4); }}},
    {"dtype", {[](const auto& group) { sum(group, 4, at::kInt); }, [](const auto& group) { sum(group, 4); }}},
    {"operation",
     {[](const auto& group) { group.broadcast(torch::ones({4})); },
      [](const auto& group) { sum(group, 4); }}},
    {"root",
     {[](const auto& group) { group.broadcast(torch::ones({4}), 1); },
      [](const auto& group) { group.broadcast(torch::ones({4}), 0); }}},
    {"gather",
     {[](const auto& group) { group.gather(torch::ones({3})); },
      [](const auto& group) { group.gather(torch::ones({4})); }}},
    // What rank 1 does it has done before, so that it compares nothing: the others have to ask.
    {"known", {[](const auto& group) { sum(group, 2); }, [](const auto& group) { sum(group, 4); }}},
};

ProcessGroup group_with(milliseconds timeout, const std::string& backend = "gloo") {
  return ProcessGroup::init(lockstep::World::from_environment(),
                            {.backend = lockstep::comm_backend_from(backend),
                             .timeout = timeout,
                             .join_timeout = std::chrono::seconds(40)});
}

}  // namespace

int disagree(const Words& words) {
  const ProcessGroup group = group_with(std::chrono::seconds(20));
  for (int i = 0; i < 3; ++i) sum(group, 2);
  const Disagreement& what = kDisagreements.at(argument(words, 0));
  (group.rank() == 1 ? what.odd : what.others)(group);
  return 0;
}

/// After three collectives rank 1 does what the argument says instead of the fourth.
int awaited(const Words& words) {
  const std::string how = argument(words, 0);
  const ProcessGroup group = group_with(std::chrono::seconds(3), words.size() > 1 ? words[1] : "gloo");
  for (int i = 0; i < 3; ++i) sum(group, 2);
  lockstep::process_heartbeat().working("forward");
  if (group.rank() == 1) {
    if (how == "exits") std::exit(0);
    if (how == "returns") return 0;
    if (how == "stops") std::raise(SIGSTOP);
    if (how == "sleeps") std::this_thread::sleep_for(std::chrono::seconds(60));
  }
  sum(group, 2);
  return 0;
}

/// Rank 1 is killed amid collectives of the kind that the argument names.
int killed_in(const Words& words) {
  constexpr int kEndless = 1'000'000;
  const auto collective = lockstep::testing::every_collective().at(argument(words, 0));
  const ProcessGroup group = group_with(std::chrono::seconds(40), argument(words, 1));
  collective(group);
  if (group.rank() == 1) die_after(milliseconds(100));
  for (int i = 0; i < kEndless; ++i) collective(group);
  return 0;
}

/// Rank 1 comes late, with ranges of its own; then everybody writes a trace.
int traced(const Words& words) {
  const ProcessGroup group = group_with(std::chrono::seconds(20));
  const auto pair = group.new_group({0, 1});
  for (int i = 0; i < 5; ++i) {
    const lockstep::trace::Range range("step " + std::to_string(i));
    if (group.rank() == 1) std::this_thread::sleep_for(milliseconds(20));
    sum(group, 2);
    if (pair) sum(*pair, 3);
  }
  std::cout << group.write_trace(argument(words, 0)) + "\n" << std::flush;
  group.barrier();
  return 0;
}

}  // namespace probe
