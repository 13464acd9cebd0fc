#include "shm_backend.hpp"

#include <ATen/ThreadLocalState.h>

#include <atomic>
#include <string>
#include <utility>

#include "all_reduces_now.hpp"
#include "flat_tensors.hpp"
#include "lockstep/core/error.hpp"
#include "observed_backend.hpp"
#include "operation_queue.hpp"
#include "shm_receive.hpp"
#include "shm_tensors.hpp"
#include "shm_work.hpp"

namespace lockstep::comm {
namespace {

using c10d::OpType;
using shm::Elements;
using WorkPointer = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;

constexpr std::size_t kUrgentBytes =
    256U << 10;  // Worth waking the worker, so that the caller computes beside it.

shm::Reduction reduction_of(const c10d::ReduceOp& op) {
  switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
    case c10d::ReduceOp::SUM:
      return shm::Reduction::sum;
    case c10d::ReduceOp::AVG:
      return shm::Reduction::avg;
    case c10d::ReduceOp::PRODUCT:
      return shm::Reduction::product;
    case c10d::ReduceOp::MIN:
      return shm::Reduction::min;
    case c10d::ReduceOp::MAX:
      return shm::Reduction::max;
    case c10d::ReduceOp::BAND:
      return shm::Reduction::bit_and;
    case c10d::ReduceOp::BOR:
      return shm::Reduction::bit_or;
    case c10d::ReduceOp::BXOR:
      return shm::Reduction::bit_xor;
    default:
      throw UsageError("this reduction cannot be done over shared memory");
  }
}

shm::Call call_of(shm::Operation operation, Elements elements, int root = -1) {
  return {.count = elements.count, .root = root, .operation = operation, .dtype = elements.dtype};
}

shm::ConstBuffers constant(const std::vector<void*>& places) { return {places.data(), places.size()}; }

class ShmBackend final : public c10d::Backend, public AllReducesNow {
 public:
  ShmBackend(int rank, int size, SharedMemory memory)
      : c10d::Backend(rank, size),
        memory_(std::move(memory)),
        receives_(std::make_shared<Receives>(memory_.group)),
        queue_(std::make_shared<OperationQueue>(memory_.cpu)) {}
  ~ShmBackend() override { queue_->close(); }

  const std::string getBackendName() const override { return memory_.flat ? "shm+gloo" : "shm"; }
  shm::Group& group() { return *memory_.group; }

  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  void all_reduce_now(const at::Tensor& tensor, const c10d::ReduceOp& op) override;
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
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                            std::vector<std::int64_t>& input_splits,
                            const c10d::AllToAllOptions& options) override;
  WorkPointer alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPointer barrier(const c10d::BarrierOptions& options) override;
  WorkPointer send(Tensors& tensors, int destination, int tag) override;
  WorkPointer recv(Tensors& tensors, int source, int tag) override;
  WorkPointer recvAnysource(Tensors& tensors, int tag) override;

  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override { return queued_.load(); }

 private:
  /// In the queue, when the ranks have agreed on an operation that needs it, so that all make it then.
  c10d::Backend& fallback() {
    if (memory_.flat) return *memory_.flat;
    if (!fallback_) fallback_ = memory_.make_fallback();
    return *fallback_;
  }
  /// Queues `body(transport)`, which holds the tensors that it uses until it has run.
  template <class Body>
  WorkPointer queue(OpType type, std::size_t bytes, Tensors outputs, Body body);
  /// The same with what Gloo carries: compared, and in one order with the rest.
  template <class Start>
  WorkPointer queue_elsewhere(OpType type, const shm::Call& call, Tensors outputs, Start start);
  WorkPointer receive(OpType type, const at::Tensor& tensor, int source, int tag);
  std::function<void(shm::Transport&)> gather_into(const at::Tensor& output, const at::Tensor& input) const;
  std::function<void(shm::Transport&)> reduce_into(const at::Tensor& output, const at::Tensor& input,
                                                   const c10d::ReduceOp& op) const;
  template <class Make>
  WorkPointer queue_each(const Tensors& outputs, const Tensors& inputs, const Make& make);

  SharedMemory memory_;
  BackendPointer fallback_;
  std::shared_ptr<Receives> receives_;
  std::shared_ptr<OperationQueue> queue_;
  std::atomic<std::uint64_t> queued_{0};
};

template <class Body>
WorkPointer ShmBackend::queue(OpType type, std::size_t bytes, Tensors outputs, Body body) {
  ++queued_;
  auto entry =
      queue_->add([transport = memory_.transport, run = std::move(body)]() mutable { run(*transport); },
                  bytes > kUrgentBytes);
  return c10::make_intrusive<ShmWork>(type, queue_, std::move(entry), std::move(outputs));
}

template <class Start>
WorkPointer ShmBackend::queue_elsewhere(OpType type, const shm::Call& call, Tensors outputs, Start start) {
  // Gloo writes into tensors by LibTorch's operations, which ask for inference mode and gradients.
  return queue(type, 0, std::move(outputs),
               [=, this, callers = at::ThreadLocalState()](shm::Transport& transport) mutable {
                 const at::ThreadLocalStateGuard as_the_caller(callers);
                 transport.elsewhere(call, [&] { start(fallback())->wait(); });
               });
}

WorkPointer ShmBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const at::Tensor& tensor = single("all_reduce", tensors);
  if (tensor.layout() == at::kSparse) {
    const shm::Call call{.operation = shm::Operation::all_reduce_sparse,
                         .dtype = dtype_of(tensor.scalar_type()),
                         .reduction = reduction_of(options.reduceOp)};
    return queue_elsewhere(OpType::ALLREDUCE, call, tensors, [tensors, options](c10d::Backend& gloo) mutable {
      return gloo.allreduce(tensors, options);
    });
  }
  const Elements elements = elements_of("all_reduce", tensor);
  const auto reduction = reduction_of(options.reduceOp);
  return queue(OpType::ALLREDUCE, elements.bytes(), tensors, [=](shm::Transport& transport) {
    transport.all_reduce(tensor.data_ptr(), elements, reduction);
  });
}

void ShmBackend::all_reduce_now(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  const Elements elements = elements_of("all_reduce", tensor);
  const auto reduction = reduction_of(op);
  ++queued_;
  queue_->run([&] { memory_.transport->all_reduce(tensor.data_ptr(), elements, reduction); });
}

WorkPointer ShmBackend::allreduce_coalesced(Tensors& tensors,
                                            const c10d::AllreduceCoalescedOptions& options) {
  std::vector<Elements> all;
  for (const auto& tensor : tensors) all.push_back(elements_of("all_reduce", tensor));
  const auto reduction = reduction_of(options.reduceOp);
  return queue(OpType::ALLREDUCE_COALESCED, kUrgentBytes, tensors,
               [list = tensors, all, reduction](shm::Transport& transport) {
                 for (std::size_t i = 0; i < list.size(); ++i) {
                   transport.all_reduce(list[i].data_ptr(), all[i], reduction);
                 }
               });
}

WorkPointer ShmBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const at::Tensor& tensor = single("broadcast", tensors);
  const Elements elements = elements_of("broadcast", tensor);
  const int root = static_cast<int>(options.rootRank);
  return queue(OpType::BROADCAST, elements.bytes(), tensors,
               [=](shm::Transport& transport) { transport.broadcast(tensor.data_ptr(), elements, root); });
}

WorkPointer ShmBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor& tensor = single("reduce", tensors);
  const Elements elements = elements_of("reduce", tensor);
  const auto reduction = reduction_of(options.reduceOp);
  const int root = static_cast<int>(options.rootRank);
  return queue(OpType::REDUCE, elements.bytes(), tensors, [=](shm::Transport& transport) {
    transport.reduce(tensor.data_ptr(), elements, reduction, root);
  });
}

WorkPointer ShmBackend::allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions&) {
  const at::Tensor& input = single("all_gather", inputs);
  const Elements elements = elements_of("all_gather", input);
  const auto held = memory_of("all_gather", outputs.at(0), elements);
  return queue(OpType::ALLGATHER, elements.bytes(), held.tensors, [=](shm::Transport& transport) {
    transport.all_gather(input.data_ptr(), held.places, elements);
  });
}

/// `outputs[r][i]` is what rank r's `inputs[i]` becomes here.
WorkPointer ShmBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                            const c10d::AllgatherOptions&) {
  std::vector<std::function<void(shm::Transport&)>> bodies;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Elements elements = elements_of("all_gather_coalesced", inputs[i]);
    Tensors list;
    for (const auto& of_rank : outputs) list.push_back(of_rank.at(i));
    bodies.push_back([=, input = inputs[i],
                      held = memory_of("all_gather_coalesced", list, elements)](shm::Transport& transport) {
      transport.all_gather(input.data_ptr(), held.places, elements);
    });
  }
  return queue(OpType::ALLGATHER_COALESCED, kUrgentBytes, {}, [bodies](shm::Transport& transport) {
    for (const auto& body : bodies) body(transport);
  });
}

std::function<void(shm::Transport&)> ShmBackend::gather_into(const at::Tensor& output,
                                                             const at::Tensor& input) const {
  const Elements elements = elements_of("all_gather_into_tensor", input);
  const auto whole = elements_of("all_gather_into_tensor", output);
  if (whole.dtype != elements.dtype || whole.count != elements.count * static_cast<std::size_t>(getSize())) {
    throw UsageError(
        "all_gather_into_tensor: the output must be of the input's dtype and as large as all inputs");
  }
  return [=, size = getSize()](shm::Transport& transport) {
    transport.all_gather(input.data_ptr(), pieces_of(output, elements, size), elements);
  };
}

WorkPointer ShmBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                        const c10d::AllgatherOptions&) {
  return queue(OpType::_ALLGATHER_BASE, output.nbytes(), {output}, gather_into(output, input));
}

template <class Make>
WorkPointer ShmBackend::queue_each(const Tensors& outputs, const Tensors& inputs, const Make& make) {
  if (outputs.size() != inputs.size()) throw UsageError("expected as many output as input tensors");
  std::vector<std::function<void(shm::Transport&)>> bodies;
  for (std::size_t i = 0; i < inputs.size(); ++i) bodies.push_back(make(outputs[i], inputs[i]));
  return queue(OpType::COALESCED, kUrgentBytes, outputs, [bodies](shm::Transport& transport) {
    for (const auto& body : bodies) body(transport);
  });
}

WorkPointer ShmBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                        const c10d::AllgatherOptions&) {
  return queue_each(outputs, inputs, [&](const at::Tensor& output, const at::Tensor& input) {
    return gather_into(output, input);
  });
}

WorkPointer ShmBackend::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  const at::Tensor& input = single("gather", inputs);
  const Elements elements = elements_of("gather", input);
  const auto held = memory_of("gather", outputs.empty() ? Tensors{} : outputs.at(0), elements);
  const int root = static_cast<int>(options.rootRank);
  if (getRank() == root) check_count("gather", "output", held.tensors, getSize());
  if (memory_.flat) {
    return queue_elsewhere(
        OpType::GATHER, call_of(shm::Operation::gather, elements, root), held.tensors,
        [=](c10d::Backend& gloo) mutable { return gloo.gather(outputs, inputs, options); });
  }
  return queue(OpType::GATHER, elements.bytes(), held.tensors, [=, group = memory_.group](shm::Transport&) {
    shm::gather(group->step_sync(), input.data_ptr(), held.places, elements, root);
  });
}

WorkPointer ShmBackend::scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) {
  const at::Tensor& output = single("scatter", outputs);
  const Elements elements = elements_of("scatter", output);
  const auto held = memory_of("scatter", inputs.empty() ? Tensors{} : inputs.at(0), elements);
  const int root = static_cast<int>(options.rootRank);
  if (getRank() == root) check_count("scatter", "input", held.tensors, getSize());
  if (memory_.flat) {
    return queue_elsewhere(
        OpType::SCATTER, call_of(shm::Operation::scatter, elements, root), outputs,
        [=](c10d::Backend& gloo) mutable { return gloo.scatter(outputs, inputs, options); });
  }
  return queue(OpType::SCATTER, elements.bytes(), outputs, [=, group = memory_.group](shm::Transport&) {
    shm::scatter(group->step_sync(), constant(held.places), output.data_ptr(), elements, root);
  });
}

WorkPointer ShmBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                       const c10d::ReduceScatterOptions& options) {
  const at::Tensor& output = single("reduce_scatter", outputs);
  const Elements elements = elements_of("reduce_scatter", output);
  const auto held = memory_of("reduce_scatter", inputs.at(0), elements);
  const auto reduction = reduction_of(options.reduceOp);
  return queue(OpType::REDUCE_SCATTER, elements.bytes(), outputs, [=](shm::Transport& transport) {
    transport.reduce_scatter(constant(held.places), output.data_ptr(), elements, reduction);
  });
}

std::function<void(shm::Transport&)> ShmBackend::reduce_into(const at::Tensor& output,
                                                             const at::Tensor& input,
                                                             const c10d::ReduceOp& op) const {
  const Elements elements = elements_of("reduce_scatter_tensor", output);
  const auto whole = elements_of("reduce_scatter_tensor", input);
  if (whole.dtype != elements.dtype || whole.count != elements.count * static_cast<std::size_t>(getSize())) {
    throw UsageError(
        "reduce_scatter_tensor: the input must be of the output's dtype and as large as all outputs");
  }
  return [=, reduction = reduction_of(op), size = getSize()](shm::Transport& transport) {
    const auto places = pieces_of(input, elements, size);
    transport.reduce_scatter(constant(places), output.data_ptr(), elements, reduction);
  };
}

WorkPointer ShmBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                             const c10d::ReduceScatterOptions& options) {
  return queue(OpType::_REDUCE_SCATTER_BASE, input.nbytes(), {output},
               reduce_into(output, input, options.reduceOp));
}

WorkPointer ShmBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                        const c10d::ReduceScatterOptions& options) {
  return queue_each(outputs, inputs, [&](const at::Tensor& output, const at::Tensor& input) {
    return reduce_into(output, input, options.reduceOp);
  });
}

WorkPointer ShmBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                      std::vector<std::int64_t>& output_splits,
                                      std::vector<std::int64_t>& input_splits,
                                      const c10d::AllToAllOptions& options) {
  const auto dtype = elements_of("all_to_all", input).dtype;
  if (input.scalar_type() != output.scalar_type()) {
    throw UsageError("all_to_all: the output must be of the input's dtype");
  }
  const auto to = parts_of(output, output_splits, getSize());
  const auto from = parts_of(input, input_splits, getSize());
  if (memory_.flat) {
    return queue_elsewhere(OpType::ALLTOALL_BASE, call_of(shm::Operation::all_to_all, {0, dtype}), {output},
                           [=](c10d::Backend& gloo) mutable {
                             return gloo.alltoall_base(output, input, output_splits, input_splits, options);
                           });
  }
  return queue(OpType::ALLTOALL_BASE, input.nbytes(), {output}, [=, group = memory_.group](shm::Transport&) {
    shm::all_to_all(group->step_sync(), from.places, to.places, dtype);
  });
}

WorkPointer ShmBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  check_lists(outputs, inputs, getSize());
  const auto dtype = dtype_of(inputs.front().scalar_type());
  if (memory_.flat) {
    return queue_elsewhere(
        OpType::ALLTOALL, call_of(shm::Operation::all_to_all, {0, dtype}), outputs,
        [=](c10d::Backend& gloo) mutable { return gloo.alltoall(outputs, inputs, options); });
  }
  const auto from = parts_of(inputs), to = parts_of(outputs);
  return queue(OpType::ALLTOALL, kUrgentBytes, outputs, [=, group = memory_.group](shm::Transport&) {
    shm::all_to_all(group->step_sync(), from.places, to.places, dtype);
  });
}

WorkPointer ShmBackend::barrier(const c10d::BarrierOptions&) {
  return queue(OpType::BARRIER, 0, {}, [](shm::Transport& transport) { transport.barrier(); });
}

/// Done at once: the message is copied to where the receiver finds it.
WorkPointer ShmBackend::send(Tensors& tensors, int destination, int tag) {
  if (memory_.flat) return memory_.flat->send(tensors, destination, tag);
  const at::Tensor& tensor = single("send", tensors);
  memory_.group->p2p_queue().send(destination, tag, tensor.data_ptr(), elements_of("send", tensor));
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  future->markCompleted(c10::IValue(tensors));
  return c10d::Work::create_from_future(future);
}

WorkPointer ShmBackend::receive(OpType type, const at::Tensor& tensor, int source, int tag) {
  auto request = receives_->add(tensor, elements_of("recv", tensor), source, tag);
  return c10::make_intrusive<ReceiveWork>(type, receives_, std::move(request));
}

WorkPointer ShmBackend::recv(Tensors& tensors, int source, int tag) {
  if (memory_.flat) return memory_.flat->recv(tensors, source, tag);
  return receive(OpType::RECV, single("recv", tensors), source, tag);
}

WorkPointer ShmBackend::recvAnysource(Tensors& tensors, int tag) {
  if (memory_.flat) return memory_.flat->recvAnysource(tensors, tag);
  return receive(OpType::RECVANYSOURCE, single("recv", tensors), shm::P2PQueue::kAnySource, tag);
}

/// Null for a group that carries no CPU tensors, or none by shared memory.
ShmBackend* shm_backend_of(c10d::ProcessGroup& group) noexcept {
  try {
    return dynamic_cast<ShmBackend*>(unobserved(group.getBackend(at::kCPU)).get());
  } catch (const c10::Error&) {
    return nullptr;
  }
}

}  // namespace

BackendPointer make_shm_backend(int rank, int size, SharedMemory memory) {
  return c10::make_intrusive<ShmBackend>(rank, size, std::move(memory));
}

std::shared_ptr<shm::Heap> shared_heap_of(c10d::ProcessGroup& group) {
  ShmBackend* const shared = shm_backend_of(group);
  return shared == nullptr ? nullptr : shared->group().heap();
}

std::string gone_from_memory(c10d::ProcessGroup& group, const std::vector<int>& ranks) {
  ShmBackend* const shared = shm_backend_of(group);
  return shared == nullptr ? "" : shared->group().step_sync().loss_among(ranks);
}

void announce_failure(c10d::ProcessGroup& group, const std::string& words) noexcept {
  ShmBackend* const shared = shm_backend_of(group);
  if (shared != nullptr) shared->group().step_sync().announce_failure(words.c_str());
}

void leave_group(c10d::ProcessGroup& group) noexcept {
  ShmBackend* const shared = shm_backend_of(group);
  if (shared != nullptr) shared->group().step_sync().leave(true);
}

}  // namespace lockstep::comm
