#pragma once

#include "shm/group.hpp"
#include "shm/hierarchical_collectives.hpp"

namespace lockstep::shm::testing {

/// The collectives that work on one host and over several: tests run the same on both.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual void all_reduce(void* data, Elements elements, Reduction reduction) = 0;
  virtual void reduce(void* data, Elements elements, Reduction reduction, int root) = 0;
  virtual void reduce_scatter(ConstBuffers inputs, void* output, Elements elements, Reduction reduction) = 0;
  virtual void broadcast(void* data, Elements elements, int root) = 0;
  virtual void all_gather(const void* input, Buffers outputs, Elements elements) = 0;
  virtual void barrier() = 0;
};

/// Where all ranks share memory.
class ShmTransport final : public Transport {
 public:
  explicit ShmTransport(Group& group) : sync_(group.step_sync()), heap_(*group.heap()) {}

  void all_reduce(void* data, Elements elements, Reduction reduction) override {
    shm::all_reduce(sync_, heap_, data, elements, reduction);
  }
  void reduce(void* data, Elements elements, Reduction reduction, int root) override {
    shm::reduce(sync_, data, elements, reduction, root);
  }
  void reduce_scatter(ConstBuffers inputs, void* output, Elements elements, Reduction reduction) override {
    shm::reduce_scatter(sync_, inputs, output, elements, reduction);
  }
  void broadcast(void* data, Elements elements, int root) override {
    shm::broadcast(sync_, data, elements, root);
  }
  void all_gather(const void* input, Buffers outputs, Elements elements) override {
    shm::all_gather(sync_, input, outputs, elements);
  }
  void barrier() override { shm::barrier(sync_); }

 private:
  StepSync& sync_;
  const Heap& heap_;
};

class HierarchicalTransport final : public Transport {
 public:
  explicit HierarchicalTransport(HierarchicalCollectives& hierarchy) : hierarchy_(hierarchy) {}

  void all_reduce(void* data, Elements elements, Reduction reduction) override {
    hierarchy_.all_reduce(data, elements, reduction);
  }
  void reduce(void* data, Elements elements, Reduction reduction, int root) override {
    hierarchy_.reduce(data, elements, reduction, root);
  }
  void reduce_scatter(ConstBuffers inputs, void* output, Elements elements, Reduction reduction) override {
    hierarchy_.reduce_scatter(inputs, output, elements, reduction);
  }
  void broadcast(void* data, Elements elements, int root) override {
    hierarchy_.broadcast(data, elements, root);
  }
  void all_gather(const void* input, Buffers outputs, Elements elements) override {
    hierarchy_.all_gather(input, outputs, elements);
  }
  void barrier() override { hierarchy_.barrier(); }

 private:
  HierarchicalCollectives& hierarchy_;
};

}  // namespace lockstep::shm::testing
