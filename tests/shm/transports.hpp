#pragma once

#include "shm/group.hpp"
#include "shm/hierarchical_collectives.hpp"

namespace lockstep::shm::testing {

/// The collectives that work on one host and over several: tests run the same on both.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual void run(const Collective& collective) = 0;

  void all_reduce(void* data, Elements elements, Reduction reduction) {
    run({.operation = Operation::all_reduce, .elements = elements, .reduction = reduction, .own = data});
  }
  void reduce(void* data, Elements elements, Reduction reduction, int root) {
    run({.operation = Operation::reduce,
         .elements = elements,
         .reduction = reduction,
         .root = root,
         .own = data});
  }
  void reduce_scatter(Buffers inputs, void* output, Elements elements, Reduction reduction) {
    run({.operation = Operation::reduce_scatter,
         .elements = elements,
         .reduction = reduction,
         .own = output,
         .of_ranks = inputs});
  }
  void broadcast(void* data, Elements elements, int root) {
    run({.operation = Operation::broadcast, .elements = elements, .root = root, .own = data});
  }
  void all_gather(void* input, Buffers outputs, Elements elements) {
    run({.operation = Operation::all_gather, .elements = elements, .own = input, .of_ranks = outputs});
  }
  void barrier() { run({.operation = Operation::barrier}); }
};

/// Where all ranks share memory.
class ShmTransport final : public Transport {
 public:
  explicit ShmTransport(Group& group) : sync_(group.step_sync()), heap_(*group.heap()) {}

  void run(const Collective& collective) override { shm::run(sync_, heap_, collective); }

 private:
  StepSync& sync_;
  const Heap& heap_;
};

class HierarchicalTransport final : public Transport {
 public:
  explicit HierarchicalTransport(HierarchicalCollectives& hierarchy) : hierarchy_(hierarchy) {}

  void run(const Collective& collective) override { hierarchy_.run(collective); }

 private:
  HierarchicalCollectives& hierarchy_;
};

}  // namespace lockstep::shm::testing
