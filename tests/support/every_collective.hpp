#pragma once

#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>

#include <functional>
#include <map>
#include <string>

#include "lockstep/comm/process_group.hpp"

namespace lockstep::testing {

/// What all ranks of a group may do over and over again, by name.
using Collective = std::function<void(const ProcessGroup& group)>;

/// Messages go between rank 1 and each other rank, so that nobody waits for anybody but that one.
inline void exchange_messages_with_rank_1(const ProcessGroup& group, const at::Tensor& tensor) {
  const at::Tensor received = at::empty_like(tensor);
  for (int other = 0; other < group.size(); ++other) {
    if ((group.rank() == 1) == (other == 1)) continue;
    Work sending = group.send_async(tensor, other);
    group.recv(received, other);
    sending.wait();
  }
}

/// Roots are the last rank, so that rank 1 is one in a group of two, and none in a larger one.
inline std::map<std::string, Collective> every_collective() {
  const at::Tensor small = at::ones({1000});
  const auto large = [](const ProcessGroup& group) { return at::ones({100'000 * group.size()}); };
  const auto parts = [=](const ProcessGroup& group) { return large(group).chunk(group.size()); };
  const auto last = [](const ProcessGroup& group) { return group.size() - 1; };
  return {
      {"all_reduce", [=](const auto& group) { group.all_reduce(large(group)); }},
      {"small_all_reduce", [=](const auto& group) { group.all_reduce(small.clone()); }},
      {"all_reduce_async",
       [=](const auto& group) {
         Work first = group.all_reduce_async(large(group)), second = group.all_reduce_async(small.clone());
         second.wait();
         first.wait();
       }},
      {"broadcast", [=](const auto& group) { group.broadcast(large(group), last(group)); }},
      {"reduce", [=](const auto& group) { group.reduce(large(group), last(group)); }},
      {"all_gather", [=](const auto& group) { group.all_gather(parts(group)[0]); }},
      {"gather", [=](const auto& group) { group.gather(parts(group)[0], last(group)); }},
      {"scatter",
       [=](const auto& group) {
         const auto inputs = parts(group);
         group.scatter(at::empty_like(inputs[0]),
                       group.rank() == last(group) ? inputs : std::vector<at::Tensor>(), last(group));
       }},
      {"reduce_scatter",
       [=](const auto& group) { group.reduce_scatter(at::empty_like(parts(group)[0]), parts(group)); }},
      {"all_to_all",
       [=](const auto& group) { group.all_to_all_single(at::empty_like(large(group)), large(group)); }},
      {"barrier", [](const auto& group) { group.barrier(); }},
      {"send_and_recv", [=](const auto& group) { exchange_messages_with_rank_1(group, parts(group)[0]); }},
  };
}

}  // namespace lockstep::testing
