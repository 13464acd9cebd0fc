#pragma once

#include <functional>

#include "shm/collectives.hpp"
#include "shm/group.hpp"

namespace lockstep::shm {

/// The collectives of a group, whatever its ranks have between them. They work as the functions of the same
/// names in collectives.hpp, and fail as Group says.
class Carrier {
 public:
  virtual ~Carrier() = default;

  virtual void all_reduce(void* data, Elements elements, Reduction reduction) = 0;
  virtual void reduce(void* data, Elements elements, Reduction reduction, int root) = 0;
  virtual void reduce_scatter(ConstBuffers inputs, void* output, Elements elements, Reduction reduction) = 0;
  virtual void broadcast(void* data, Elements elements, int root) = 0;
  virtual void all_gather(const void* input, Buffers outputs, Elements elements) = 0;
  virtual void barrier() = 0;
  /// What something else carries: `body` runs when the ranks have agreed on the call.
  virtual void elsewhere(const Call& call, const std::function<void()>& body) = 0;
};

/// Where all ranks share memory.
class MemoryCarrier final : public Carrier {
 public:
  explicit MemoryCarrier(Group& group) : exchange_(group.exchange()), heap_(*group.heap()) {}

  void all_reduce(void* data, Elements elements, Reduction reduction) override {
    shm::all_reduce(exchange_, heap_, data, elements, reduction);
  }
  void reduce(void* data, Elements elements, Reduction reduction, int root) override {
    shm::reduce(exchange_, data, elements, reduction, root);
  }
  void reduce_scatter(ConstBuffers inputs, void* output, Elements elements, Reduction reduction) override {
    shm::reduce_scatter(exchange_, inputs, output, elements, reduction);
  }
  void broadcast(void* data, Elements elements, int root) override {
    shm::broadcast(exchange_, data, elements, root);
  }
  void all_gather(const void* input, Buffers outputs, Elements elements) override {
    shm::all_gather(exchange_, input, outputs, elements);
  }
  void barrier() override { shm::barrier(exchange_); }
  void elsewhere(const Call& call, const std::function<void()>& body) override {
    exchange_.begin(call);
    exchange_.step();
    body();
  }

 private:
  Exchange& exchange_;
  const Heap& heap_;
};

}  // namespace lockstep::shm
