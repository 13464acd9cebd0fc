#pragma once

#include <gloo/context.h>

#include <mutex>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <vector>

#include "list_all_to_all.hpp"

namespace lockstep::comm {

/// Gloo, with the start of an operation guarded by a lock of the whole process. LibTorch 2.11 enters every
/// operation into one flight recorder, whose table of groups it changes without a lock
/// (FlightRecorder::recordWithResetEnabled), so that two groups used in two threads can crash. Starting an
/// operation never waits for a peer, so the lock is held briefly.
class GuardedGloo : public c10d::ProcessGroupGloo {
 public:
  using Base = c10d::ProcessGroupGloo;
  using Base::Base;
  using WorkPointer = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<Tensors>;

  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return guarded([&] { return Base::broadcast(tensors, options); });
  }
  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return guarded([&] { return Base::allreduce(tensors, options); });
  }
  WorkPointer allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return guarded([&] { return Base::allreduce_sparse(tensors, options); });
  }
  WorkPointer allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    return guarded([&] { return Base::allreduce_coalesced(tensors, options); });
  }
  WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    return guarded([&] { return Base::reduce(tensors, options); });
  }
  WorkPointer allgather(TensorLists& outputs, Tensors& inputs,
                        const c10d::AllgatherOptions& options) override {
    return guarded([&] { return Base::allgather(outputs, inputs, options); });
  }
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input,
                              const c10d::AllgatherOptions& options) override {
    return guarded([&] { return Base::_allgather_base(output, input, options); });
  }
  WorkPointer allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                  const c10d::AllgatherOptions& options) override {
    return guarded([&] { return Base::allgather_coalesced(outputs, inputs, options); });
  }
  WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) override {
    return guarded([&] { return Base::allgather_into_tensor_coalesced(outputs, inputs, options); });
  }
  WorkPointer gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    return guarded([&] { return Base::gather(outputs, inputs, options); });
  }
  WorkPointer scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override {
    return guarded([&] { return Base::scatter(outputs, inputs, options); });
  }
  WorkPointer reduce_scatter(Tensors& outputs, TensorLists& inputs,
                             const c10d::ReduceScatterOptions& options) override {
    return guarded([&] { return Base::reduce_scatter(outputs, inputs, options); });
  }
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& options) override {
    return guarded([&] { return Base::_reduce_scatter_base(output, input, options); });
  }
  WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::ReduceScatterOptions& options) override {
    return guarded([&] { return Base::reduce_scatter_tensor_coalesced(outputs, inputs, options); });
  }
  WorkPointer barrier(const c10d::BarrierOptions& options) override {
    return guarded([&] { return Base::barrier(options); });
  }
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                            std::vector<std::int64_t>& input_splits,
                            const c10d::AllToAllOptions& options) override {
    return guarded([&] { return Base::alltoall_base(output, input, output_splits, input_splits, options); });
  }
  WorkPointer alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    return list_all_to_all(*this, outputs, inputs, options);  // c10d's Gloo has none.
  }
  WorkPointer send(Tensors& tensors, int destination, int tag) override {
    return guarded([&] { return Base::send(tensors, destination, tag); });
  }
  WorkPointer recv(Tensors& tensors, int source, int tag) override {
    return guarded([&] { return Base::recv(tensors, source, tag); });
  }
  WorkPointer recvAnysource(Tensors& tensors, int tag) override {
    return guarded([&] { return Base::recvAnysource(tensors, tag); });
  }

  /// Of c10d's Gloo it does nothing; here it closes the connections, so that the others' operations fail.
  void abort() override {
    for (const auto& context : contexts_) context->closeConnections();
  }

 private:
  /// An operation has been started, with the lock still held.
  virtual void started() {}

  template <class Start>
  WorkPointer guarded(const Start& start) {
    const std::lock_guard lock(mutex_);
    WorkPointer work = start();
    started();
    return work;
  }

  inline static std::recursive_mutex mutex_;  // Recursive: some of Gloo's operations are made of others.
};

}  // namespace lockstep::comm
