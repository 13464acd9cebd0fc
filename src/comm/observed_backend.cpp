#include "observed_backend.hpp"

#include <algorithm>
#include <utility>

#include "all_reduces_now.hpp"
#include "call_exchange.hpp"
#include "compares_calls.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"
#include "tensor_facts.hpp"

namespace lockstep::comm {
namespace {

using WorkPointer = c10::intrusive_ptr<c10d::Work>;
using BackendPointer = c10::intrusive_ptr<c10d::Backend>;
using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;
using Splits = std::vector<std::int64_t>;

OperationFacts with_op(OperationFacts facts, const c10d::ReduceOp& op) {
  facts.reduce_op = reduce_name(op);
  return facts;
}

OperationFacts with_peer(OperationFacts facts, std::int64_t peer) {
  facts.peer = static_cast<std::int32_t>(peer);
  return facts;
}

OperationFacts message(OperationFacts facts, int peer, int tag) {
  if (tag >= CallExchange::kFirstTag) {
    throw UsageError(std::string(facts.name) + ": tags from " + std::to_string(CallExchange::kFirstTag) +
                     " on are this library's own, but came " + std::to_string(tag));
  }
  facts.is_message = true;
  facts.tag = tag;
  return with_peer(facts, peer);
}

/// Of each rank's part.
Splits rows_of(const at::Tensor& tensor, const Splits& splits, int ranks) {
  if (!splits.empty() || tensor.dim() == 0) return splits;
  return Splits(static_cast<std::size_t>(ranks), tensor.size(0) / ranks);
}

OperationFacts of_any_size(OperationFacts facts) {
  facts.sizes_may_differ = true;
  return facts;
}

class ObservedBackend : public c10d::Backend {
 public:
  ObservedBackend(BackendPointer inner, std::shared_ptr<GroupObserver> observer, Ends ends)
      : Backend(inner->getRank(), inner->getSize()),
        inner_(std::move(inner)),
        observer_(std::move(observer)),
        ends_(ends),
        compares_(dynamic_cast<ComparesCalls*>(inner_.get())) {
    setBoundDeviceId(inner_->getBoundDeviceId());
  }

  const BackendPointer& inner() const { return inner_; }

  // ---- Operations

  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return observe(with_peer(facts_of("broadcast", tensors), options.rootRank),
                   [&] { return inner_->broadcast(tensors, options); });
  }
  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return observe(with_op(facts_of("all_reduce", tensors), options.reduceOp),
                   [&] { return inner_->allreduce(tensors, options); });
  }
  WorkPointer allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return observe(of_any_size(facts_of("all_reduce_sparse", tensors)),
                   [&] { return inner_->allreduce_sparse(tensors, options); });
  }
  WorkPointer allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    return observe(with_op(facts_of("all_reduce_coalesced", tensors), options.reduceOp),
                   [&] { return inner_->allreduce_coalesced(tensors, options); });
  }
  WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    return observe(with_peer(with_op(facts_of("reduce", tensors), options.reduceOp), options.rootRank),
                   [&] { return inner_->reduce(tensors, options); });
  }
  WorkPointer allgather(TensorLists& outputs, Tensors& inputs,
                        const c10d::AllgatherOptions& options) override {
    return observe(facts_of("all_gather", inputs),
                   [&] { return inner_->allgather(outputs, inputs, options); });
  }
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input,
                              const c10d::AllgatherOptions& options) override {
    return observe(facts_of("all_gather_into_tensor", input),
                   [&] { return inner_->_allgather_base(output, input, options); });
  }
  WorkPointer allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                  const c10d::AllgatherOptions& options) override {
    return observe(facts_of("all_gather_coalesced", inputs),
                   [&] { return inner_->allgather_coalesced(outputs, inputs, options); });
  }
  WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) override {
    return observe(facts_of("all_gather_into_tensor_coalesced", inputs),
                   [&] { return inner_->allgather_into_tensor_coalesced(outputs, inputs, options); });
  }
  WorkPointer gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    return observe(with_peer(facts_of("gather", inputs), options.rootRank),
                   [&] { return inner_->gather(outputs, inputs, options); });
  }
  WorkPointer scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override {
    return observe(with_peer(facts_of("scatter", outputs), options.rootRank),
                   [&] { return inner_->scatter(outputs, inputs, options); });
  }
  WorkPointer reduce_scatter(Tensors& outputs, TensorLists& inputs,
                             const c10d::ReduceScatterOptions& options) override {
    return observe(with_op(facts_of("reduce_scatter", outputs), options.reduceOp),
                   [&] { return inner_->reduce_scatter(outputs, inputs, options); });
  }
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& options) override {
    return observe(with_op(facts_of("reduce_scatter_tensor", output), options.reduceOp),
                   [&] { return inner_->_reduce_scatter_base(output, input, options); });
  }
  WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::ReduceScatterOptions& options) override {
    return observe(with_op(facts_of("reduce_scatter_tensor_coalesced", outputs), options.reduceOp),
                   [&] { return inner_->reduce_scatter_tensor_coalesced(outputs, inputs, options); });
  }
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input, Splits& output_splits,
                            Splits& input_splits, const c10d::AllToAllOptions& options) override {
    const RowCounts rows{rows_of(input, input_splits, getSize()), rows_of(output, output_splits, getSize())};
    return observe(
        of_any_size(facts_of("all_to_all_single", input)),
        [&] { return inner_->alltoall_base(output, input, output_splits, input_splits, options); }, {},
        &rows);
  }
  WorkPointer alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    return observe(of_any_size(facts_of("all_to_all", inputs)),
                   [&] { return inner_->alltoall(outputs, inputs, options); });
  }
  WorkPointer barrier(const c10d::BarrierOptions& options) override {
    return observe({.name = "c10d_barrier"}, [&] { return inner_->barrier(options); });
  }
  WorkPointer send(Tensors& tensors, int destination, int tag) override {
    return observe(
        message(facts_of("send", tensors), destination, tag),
        [&] { return inner_->send(tensors, destination, tag); }, tensors);
  }
  WorkPointer recv(Tensors& tensors, int source, int tag) override {
    return observe(
        message(facts_of("recv", tensors), source, tag), [&] { return inner_->recv(tensors, source, tag); },
        tensors);
  }
  WorkPointer recvAnysource(Tensors& tensors, int tag) override {
    return observe(
        message(facts_of("recv_any_source", tensors), -1, tag),
        [&] { return inner_->recvAnysource(tensors, tag); }, tensors);
  }

  // ---- All else is the backend's own

  const std::string getBackendName() const override { return inner_->getBackendName(); }
  c10::intrusive_ptr<Options> getBackendOptions() override { return inner_->getBackendOptions(); }
  bool supportsSplitting() const override { return inner_->supportsSplitting(); }
  bool supportsCoalescing() const override { return inner_->supportsCoalescing(); }
  bool supportsTimeEstimation() const override { return inner_->supportsTimeEstimation(); }
  bool supportsShrinking() const override { return inner_->supportsShrinking(); }
  BackendPointer shrink(const Splits& excluded, int flags,
                        const c10::intrusive_ptr<Options>& options) override {
    return inner_->shrink(excluded, flags, options);
  }
  BackendPointer split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                       const c10::intrusive_ptr<Options>& options) override {
    return inner_->split(store, ranks, options);
  }
  BackendPointer merge(const c10::intrusive_ptr<c10d::Store>& store,
                       const c10::intrusive_ptr<Options>& options, const int& rank,
                       const int& size) override {
    return inner_->merge(store, options, rank, size);
  }
  void setTimeout(std::chrono::milliseconds timeout) override { inner_->setTimeout(timeout); }
  void startCoalescing() override { inner_->startCoalescing(); }
  WorkPointer endCoalescing() override { return inner_->endCoalescing(); }
  void monitoredBarrier(const c10d::BarrierOptions& options, bool all) override {
    inner_->monitoredBarrier(options, all);
  }
  void setSequenceNumberForGroup() override { inner_->setSequenceNumberForGroup(); }
  std::uint64_t getSequenceNumberForGroup() override { return inner_->getSequenceNumberForGroup(); }
  void registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) override {
    inner_->registerOnCompletionHook(std::move(hook));
  }
  void waitForPendingWorks() override { inner_->waitForPendingWorks(); }
  void enableCollectivesTiming() override { inner_->enableCollectivesTiming(); }
  void setGroupUid(const std::string& name) override {
    Backend::setGroupUid(name);
    inner_->setGroupUid(name);
  }
  void eagerConnectSingleDevice(at::Device device) override { inner_->eagerConnectSingleDevice(device); }
  c10d::ErrorType getError() override { return inner_->getError(); }
  std::shared_ptr<c10::Allocator> getMemAllocator() override { return inner_->getMemAllocator(); }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override {
    return inner_->allocateTensor(size, options);
  }
  bool supportsTensorAlloc(c10::DeviceIndex device) override { return inner_->supportsTensorAlloc(device); }
  void abort() override { inner_->abort(); }
  void shutdown() override { inner_->shutdown(); }

 protected:
  GroupObserver& observer() { return *observer_; }

 private:
  /// `message`: the tensors of one.
  template <class Start>
  WorkPointer observe(const OperationFacts& facts, Start&& start, const Tensors& message = {},
                      const RowCounts* rows = nullptr) {
    const Ticket ticket = observer_->begin(facts, ends_ != Ends::unseen, rows);
    try {
      if (compares_ != nullptr && !facts.is_message)
        compares_->next_call(facts.call(ticket.sequence, OperationLabel::current().view()));
      WorkPointer work = start();
      // A coalescing backend has none to give before endCoalescing().
      if (!work) return work;
      const Ends ends = facts.is_message ? std::min(ends_, Ends::by_wait) : ends_;
      return c10::make_intrusive<ObservedWork>(std::move(work), observer_, ticket, ends, message);
    } catch (...) {
      observer_->explain_and_rethrow(ticket);
    }
  }

  BackendPointer inner_;
  std::shared_ptr<GroupObserver> observer_;
  Ends ends_;
  ComparesCalls* compares_;  // The inner backend, or null.
};

class ObservedNow final : public ObservedBackend, public AllReducesNow {
 public:
  ObservedNow(BackendPointer inner, AllReducesNow& now, std::shared_ptr<GroupObserver> observer, Ends ends)
      : ObservedBackend(std::move(inner), std::move(observer), ends), now_(now) {}

  void all_reduce_now(const at::Tensor& tensor, const c10d::ReduceOp& op) override {
    const Ticket ticket = observer().begin(with_op(facts_of("all_reduce", tensor), op), true);
    try {
      const Heartbeat::Waiting beat(process_heartbeat(), "all_reduce", ticket.sequence);
      now_.all_reduce_now(tensor, op);
    } catch (...) {
      observer().explain_and_rethrow(ticket);
    }
    observer().finish(ticket, true);
  }

 private:
  AllReducesNow& now_;  // The inner backend's.
};

}  // namespace

BackendPointer observed(BackendPointer backend, std::shared_ptr<GroupObserver> observer, Ends ends) {
  if (auto* now = dynamic_cast<AllReducesNow*>(backend.get()))
    return c10::make_intrusive<ObservedNow>(std::move(backend), *now, std::move(observer), ends);
  return c10::make_intrusive<ObservedBackend>(std::move(backend), std::move(observer), ends);
}

BackendPointer unobserved(const BackendPointer& backend) {
  const auto* observing = dynamic_cast<const ObservedBackend*>(backend.get());
  return observing == nullptr ? backend : observing->inner();
}

}  // namespace lockstep::comm
