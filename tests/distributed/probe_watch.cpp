// Ranks that leave, hang or call something else while others are in a collective.
#include <torch/types.h>

#include <csignal>
#include <iostream>
#include <thread>

#include "lockstep/comm/process_group.hpp"
#include "lockstep/comm/trace.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"
#include "probe.hpp"
#include "support/disagreements.hpp"
#include "support/every_collective.hpp"

namespace probe {
namespace {

using lockstep::ProcessGroup;

void sum(const ProcessGroup& group, std::int64_t count) {
  group.all_reduce(torch::ones({count}, group.device()));
}

ProcessGroup group_with(milliseconds timeout, const std::string& backend = "gloo") {
  return ProcessGroup::init(lockstep::World::from_environment(),
                            {.backend = lockstep::comm_backend_from(backend),
                             .device = device(),
                             .timeout = timeout,
                             .join_timeout = std::chrono::seconds(40)});
}

}  // namespace

/// Rank 1 calls a different operation than the others; all ranks have called both before.
int disagree(const Words& words) {
  const ProcessGroup group = group_with(std::chrono::seconds(20));
  lockstep::testing::disagree(group, argument(words, 0), group.rank() == 1);
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

/// Rank 1 is killed during collectives of the kind that the argument names.
int killed_in(const Words& words) {
  constexpr int kEndless = 1'000'000;
  const auto collective = lockstep::testing::every_collective().at(argument(words, 0));
  const ProcessGroup group = group_with(std::chrono::seconds(40), argument(words, 1));
  collective(group);
  if (group.rank() == 1) die_after(milliseconds(100));
  for (int i = 0; i < kEndless; ++i) collective(group);
  return 0;
}

/// Rank 1 arrives late, with its own trace ranges; then all ranks write a trace.
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
