#pragma once

#include <functional>
#include <vector>

#include "shm/groups.hpp"

namespace lockstep::shm::testing {

/// The rank that is lost.
inline constexpr int kKilled = 1;
inline constexpr std::size_t kCount = 3'000'000;

/// A rank and its data, of which the first half is what it gives and the second where it receives, a part for
/// each rank. The root is the last rank: in a group of two the one that is killed, in larger ones another.
struct Rank {
  explicit Rank(Group& joined)
      : group(joined), sync(joined.step_sync()), data(kCount, 1.0F), part{kCount / 2 / ranks(), Dtype::f32} {
    for (std::size_t r = 0; r < ranks(); ++r) {
      inputs.push_back(data.data() + r * part.count);
      outputs.push_back(data.data() + kCount / 2 + r * part.count);
    }
  }

  std::size_t ranks() const { return static_cast<std::size_t>(sync.size()); }
  int root() const { return sync.size() - 1; }
  Elements whole() const { return {data.size(), Dtype::f32}; }

  Group& group;
  StepSync& sync;
  std::vector<float> data;
  Elements part;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  void* shared = nullptr;
};

using RankOperation = std::function<void(Rank&)>;

struct Case {
  const char* name;
  RankOperation run;
};

inline void all_to_all_of(Rank& rank) {
  std::vector<Part> inputs, outputs;
  for (const void* input : rank.inputs) inputs.push_back({const_cast<void*>(input), rank.part.count});
  for (void* output : rank.outputs) outputs.push_back({output, rank.part.count});
  all_to_all(rank.sync, inputs, outputs, Dtype::f32);
}

inline void all_reduce_in_the_heap(Rank& rank) {
  if (rank.shared == nullptr) rank.shared = rank.group.heap()->allocate(rank.whole().bytes());
  all_reduce(rank.sync, *rank.group.heap(), rank.shared, rank.whole(), Reduction::max);
}

/// With the one that is killed, which exchanges them with everybody, so that nobody waits for anybody else.
inline void messages(Rank& rank) {
  P2PQueue& p2p_queue = rank.group.p2p_queue();
  for (int other = 0; other < rank.sync.size(); ++other) {
    if ((rank.sync.rank() == kKilled) == (other == kKilled)) continue;
    p2p_queue.send(other, 0, rank.inputs[0], rank.part);
    p2p_queue.wait(p2p_queue.receive({other, 0, rank.outputs[0], rank.part}));
  }
}

inline const Case kCases[] = {
    {"all_reduce",
     [](Rank& rank) {
       all_reduce(rank.sync, *rank.group.heap(), rank.data.data(), rank.whole(), Reduction::max);
     }},
    {"all_reduce_in_the_heap", all_reduce_in_the_heap},
    {"small_all_reduce",
     [](Rank& rank) {
       all_reduce(rank.sync, *rank.group.heap(), rank.data.data(), {100, Dtype::f32}, Reduction::max);
     }},
    {"broadcast", [](Rank& rank) { broadcast(rank.sync, rank.data.data(), rank.whole(), rank.root()); }},
    {"reduce",
     [](Rank& rank) { reduce(rank.sync, rank.data.data(), rank.whole(), Reduction::max, rank.root()); }},
    {"all_gather", [](Rank& rank) { all_gather(rank.sync, rank.inputs[0], rank.outputs, rank.part); }},
    {"gather", [](Rank& rank) { gather(rank.sync, rank.inputs[0], rank.outputs, rank.part, rank.root()); }},
    {"scatter", [](Rank& rank) { scatter(rank.sync, rank.inputs, rank.outputs[0], rank.part, rank.root()); }},
    {"reduce_scatter",
     [](Rank& rank) { reduce_scatter(rank.sync, rank.inputs, rank.outputs[0], rank.part, Reduction::max); }},
    {"all_to_all", all_to_all_of},
    {"barrier", [](Rank& rank) { barrier(rank.sync); }},
    {"messages", messages},
};

}  // namespace lockstep::shm::testing
