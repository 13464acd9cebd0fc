#pragma once

#include <functional>

#include "shm/collectives.hpp"
#include "shm/group.hpp"

namespace lockstep::shm {

/// The collectives of a group over whatever connects its ranks. They work as the functions of the same names
/// in collectives.hpp, and fail as Group says.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual void all_reduce(void* data, Elements elements, Reduction reduction) = 0;
  virtual void reduce(void* data, Elements elements, Reduction reduction, int root) = 0;
  virtual void reduce_scatter(ConstBuffers inputs, void* output, Elements elements, Reduction reduction) = 0;
  virtual void broadcast(void* data, Elements elements, int root) = 0;
  virtual void all_gather(const void* input, Buffers outputs, Elements elements) = 0;
  virtual void barrier() = 0;
  /// An operation over another transport: `body` runs when the calls of the ranks are verified.
  virtual void elsewhere(const Call& call, const std::function<void()>& body) = 0;
};

/// For groups whose ranks all share memory.
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
  void elsewhere(const Call& call, const std::function<void()>& body) override {
    sync_.begin(call);
    sync_.step();
    body();
  }

 private:
  StepSync& sync_;
  const Heap& heap_;
};

}  // namespace lockstep::shm
