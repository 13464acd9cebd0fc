#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>
#include <vector>

#include "comm/backend/operation_queue.hpp"
#include "comm/diagnostics/operation_tracker.hpp"
#include "comm/transport/transport.hpp"

namespace lockstep::comm {

/// Copies on the host of tensors that lie on a GPU; a tensor of the CPU stands for itself. They are made when
/// the GPU's stream of the calling thread has computed them.
class HostCopies {
 public:
  at::Tensor of(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.is_cpu()) return tensor;
    pairs_.emplace_back(tensor, tensor.cpu());
    return pairs_.back().second;
  }
  std::vector<at::Tensor> of(const std::vector<at::Tensor>& tensors) {
    std::vector<at::Tensor> copies;
    copies.reserve(tensors.size());
    for (const auto& tensor : tensors) copies.push_back(of(tensor));
    return copies;
  }

  /// The results go to the GPU.
  void copy_back() const {
    for (const auto& [tensor, copy] : pairs_) tensor.detach().copy_(copy);
  }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs_;
};

/// c10d's view of what carries a group's CPU tensors. Every collective goes through enqueue(), or
/// all_reduce_now() where the caller waits for it at once: there it is recorded, verified and run, by the
/// thread that waits for it or by a worker. Tensors on a GPU go through copies on the host.
class CpuBackend final : public c10d::Backend {
 public:
  using WorkPointer = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<Tensors>;
  using Splits = std::vector<std::int64_t>;

  /// `cpu`: where a worker runs; -1: anywhere.
  CpuBackend(int rank, int size, std::unique_ptr<Transport> transport,
             std::shared_ptr<OperationTracker> tracker, int cpu);
  /// Waits for what is still in flight, then leaves the group.
  ~CpuBackend() override;

  const std::string getBackendName() const override { return transport_->name(); }
  const Transport& transport() const { return *transport_; }

  /// allreduce() of one tensor in the thread that calls, which returns when it is done: nothing is made to
  /// wait for, which takes as long as the operation itself where that is small.
  void all_reduce_now(const at::Tensor& tensor, const c10d::ReduceOp& op);

  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPointer allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPointer allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPointer allgather(TensorLists& outputs, Tensors& inputs,
                        const c10d::AllgatherOptions& options) override;
  WorkPointer allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                  const c10d::AllgatherOptions& options) override;
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input,
                              const c10d::AllgatherOptions& options) override;
  WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) override;
  WorkPointer gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPointer scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override;
  WorkPointer reduce_scatter(Tensors& outputs, TensorLists& inputs,
                             const c10d::ReduceScatterOptions& options) override;
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& options) override;
  WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::ReduceScatterOptions& options) override;
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input, Splits& output_splits,
                            Splits& input_splits, const c10d::AllToAllOptions& options) override;
  /// Tensors of any shapes and strides.
  WorkPointer alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPointer barrier(const c10d::BarrierOptions& options) override;
  WorkPointer send(Tensors& tensors, int destination, int tag) override;
  WorkPointer recv(Tensors& tensors, int source, int tag) override;
  WorkPointer recvAnysource(Tensors& tensors, int tag) override;

  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override { return operations_.load(); }

 private:
  /// `meta` gets the reduction and the root of c10d's `options`. `body(transport)` holds the tensors that it
  /// uses until it has run.
  template <class CallOptions, class Body>
  WorkPointer enqueue(c10d::OpType type, OpMeta meta, const CallOptions& options, Tensors outputs,
                      HostCopies copies, Body body, const RowCounts* rows = nullptr);
  /// A sum of sparse tensors, by gathering what is not zero: on every rank the values are added in rank
  /// order, as c10d's Gloo does. Throws UsageError for another reduction. The result runs on any thread.
  static std::function<void(Transport&)> sparse_all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op,
                                                           int size);
  WorkPointer start_message(c10d::OpType type, OpMeta meta, Tensors& tensors, int peer, int tag);

  std::shared_ptr<Transport> transport_;
  std::shared_ptr<OperationTracker> tracker_;
  std::shared_ptr<OperationQueue> queue_;
  std::shared_ptr<OperationQueue> message_waits_;  // As many at a time as there are.
  std::atomic<std::uint64_t> operations_{0};
};

/// What shares memory with this rank in a group; null where the group's CPU tensors go another way. Lives as
/// long as the group.
shm::Group* shared_memory_of(c10d::ProcessGroup& group) noexcept;

/// The heap of this rank in a group whose CPU tensors are carried by shared memory; null for any other group.
std::shared_ptr<shm::Heap> shared_heap_of(c10d::ProcessGroup& group);

}  // namespace lockstep::comm
