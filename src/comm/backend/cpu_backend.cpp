#include "comm/backend/cpu_backend.hpp"

#include <ATen/ThreadLocalState.h>
#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "comm/backend/cpu_work.hpp"
#include "comm/transport/tensor_collective.hpp"
#include "comm/transport/tensor_memory.hpp"
#include "lockstep/comm/process_group.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"
#include "shm/group.hpp"

namespace lockstep::comm {
namespace {

using c10d::OpType;
using shm::Elements;
using shm::Operation;
using Run = CpuBackend::Run;
using Tensors = CpuBackend::Tensors;

/// Above this size a worker is woken immediately.
constexpr std::int64_t kUrgentBytes = 256 << 10;
/// Tags from here on are reserved for this library's own messages.
constexpr int kFirstOwnTag = 0x7fffff00;

/// What the recorder stores of an operation on a tensor.
OpMeta meta_of(const char* name, const at::Tensor& tensor) {
  OpMeta meta{.name = name};
  if (!tensor.defined() || tensor.layout() != at::kStrided) return meta;
  meta.dtype = c10::toString(tensor.scalar_type());
  meta.elements = tensor.numel();
  meta.bytes = meta.elements * static_cast<std::int64_t>(tensor.element_size());
  const auto sizes = tensor.sizes();
  meta.dimensions = static_cast<std::int32_t>(sizes.size());
  for (std::size_t i = 0; i < std::min(sizes.size(), meta.sizes.size()); ++i) meta.sizes[i] = sizes[i];
  return meta;
}

/// Of several tensors: name, dtype and sizes of the first one, totals of all.
OpMeta meta_of(const char* name, const Tensors& tensors) {
  if (tensors.empty()) return {.name = name, .tensors = 0};
  OpMeta meta = meta_of(name, tensors.front());
  meta.tensors = static_cast<std::int32_t>(tensors.size());
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    if (!tensors[i].defined()) continue;
    meta.elements += tensors[i].numel();
    meta.bytes += tensors[i].numel() * static_cast<std::int64_t>(tensors[i].element_size());
  }
  return meta;
}

OpMeta of_any_size(OpMeta meta) {
  meta.sizes_may_differ = true;
  return meta;
}

/// Consists of several operations of the transport, between which no other may begin.
bool is_several(OpType type) {
  return type == OpType::_ALLREDUCE_SPARSE || type == OpType::ALLREDUCE_COALESCED ||
         type == OpType::ALLGATHER_COALESCED || type == OpType::COALESCED;
}

const Tensors& front_of(const CpuBackend::TensorLists& lists) {
  static const Tensors none;
  return lists.empty() ? none : lists.front();
}

TensorCollective all_reduce_of(const char* name, const at::Tensor& tensor, const c10d::ReduceOp& op) {
  return {.operation = Operation::all_reduce,
          .elements = elements_of(name, tensor),
          .reduction = reduction_of(op, tensor),
          .own = tensor};
}

/// A collective with a tensor of this rank and a list of them, one for each rank.
TensorCollective with_list(const char* name, Operation operation, const at::Tensor& own,
                           const Tensors& list) {
  const Elements elements = elements_of(name, own);
  return {.operation = operation,
          .elements = elements,
          .own = own,
          .of_ranks = memory_of(name, list, elements),
          .held = list};
}

TensorCollective all_gather_of(const char* name, const Tensors& outputs, const at::Tensor& input, int size) {
  check_count(name, "output", outputs, size);
  return with_list(name, Operation::all_gather, input, outputs);
}

TensorCollective all_gather_into(const at::Tensor& output, const at::Tensor& input, int size) {
  const Elements elements = elements_of("all_gather_into_tensor", input);
  check_multiple("all_gather_into_tensor", "output", output, "input", elements, size);
  return {.operation = Operation::all_gather,
          .elements = elements,
          .own = input,
          .of_ranks = pieces_of(output, elements, size),
          .held = {output}};
}

TensorCollective reduce_scatter_into(const at::Tensor& output, const at::Tensor& input,
                                     const c10d::ReduceOp& op, int size) {
  const Elements elements = elements_of("reduce_scatter_tensor", output);
  check_multiple("reduce_scatter_tensor", "input", input, "output", elements, size);
  return {.operation = Operation::reduce_scatter,
          .elements = elements,
          .reduction = reduction_of(op, output),
          .own = output,
          .of_ranks = pieces_of(input, elements, size),
          .held = {input}};
}

/// The collectives that `make(i)` creates for several tensors, run one after the other.
template <class Make>
Run one_after_the_other(std::size_t outputs, std::size_t inputs, const Make& make) {
  if (outputs != inputs) {
    throw UsageError(
        fmt::format("expected as many output as input tensors, but got {} and {}", outputs, inputs));
  }
  std::vector<TensorCollective> collectives;
  for (std::size_t i = 0; i < inputs; ++i) collectives.push_back(make(i));
  return [collectives = std::move(collectives)](Transport& transport) {
    for (const auto& collective : collectives) transport.run(collective.value());
  };
}

}  // namespace

CpuBackend::CpuBackend(int rank, int size, std::unique_ptr<Transport> transport,
                       std::shared_ptr<OperationTracker> tracker, int cpu)
    : c10d::Backend(rank, size),
      transport_(std::move(transport)),
      tracker_(std::move(tracker)),
      queue_(std::make_shared<OperationQueue>(cpu, transport_->concurrency())),
      message_waits_(std::make_shared<OperationQueue>(-1, std::numeric_limits<int>::max())) {}

CpuBackend::~CpuBackend() { queue_->close(); }

template <class CallOptions>
CpuBackend::WorkPointer CpuBackend::enqueue(OpType type, OpMeta meta, const CallOptions& options,
                                            Tensors outputs, HostStaging copies, Run body,
                                            const RowCounts* rows) {
  if constexpr (requires { options.reduceOp; }) meta.reduce_op = shm::name_of(reduction_of(options.reduceOp));
  if constexpr (requires { options.rootRank; }) meta.peer = static_cast<std::int32_t>(options.rootRank);
  ++operations_;
  const OperationId id = tracker_->begin(meta, rows);
  const CollectiveCall call{meta, id.sequence, OperationLabel::current(),
                            std::max(options.timeout, std::chrono::milliseconds(0))};
  const bool several = is_several(type);
  // An operation over Gloo takes longer than waking a worker.
  const bool urgent = several || meta.bytes > kUrgentBytes || transport_->concurrency() > 1;
  auto entry = queue_->add(
      [transport = transport_, tracker = tracker_, failed = failed_, id, call, copies = std::move(copies),
       run = std::move(body)]() mutable {
        try {
          run_after_success(*failed, tracker->who(), call.meta.name, [&] {
            transport->begin(call);
            run(*transport);
            copies.copy_back();
          });
        } catch (...) {
          tracker->finish(id, false);
          throw;
        }
        tracker->finish(id, true);
      },
      urgent, !several);
  return c10::make_intrusive<CpuWork>(type, queue_, std::move(entry), tracker_, id, std::move(outputs));
}

void CpuBackend::all_reduce_now(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  const shm::Collective collective{.operation = Operation::all_reduce,
                                   .elements = elements_of("all_reduce", tensor),
                                   .reduction = reduction_of(op, tensor),
                                   .own = tensor.data_ptr()};
  OpMeta meta = meta_of("all_reduce", tensor);
  meta.reduce_op = shm::name_of(collective.reduction);
  ++operations_;
  const OperationId id = tracker_->begin(meta);
  try {
    const Heartbeat::Waiting beat(process_heartbeat(), meta.name, id.sequence);
    queue_->run([&] {
      run_after_success(*failed_, tracker_->who(), meta.name, [&] {
        transport_->begin({meta, id.sequence, OperationLabel::current()});
        transport_->run(collective);
      });
    });
    tracker_->finish(id, true);
  } catch (...) {
    tracker_->explain_and_rethrow(id);
  }
}

CpuBackend::WorkPointer CpuBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (single("all_reduce", tensors).layout() == at::kSparse) return allreduce_sparse(tensors, options);
  HostStaging copies;
  const at::Tensor tensor = copies.of(tensors.front());
  return enqueue(OpType::ALLREDUCE, meta_of("all_reduce", tensor), options, tensors, std::move(copies),
                 all_reduce_of("all_reduce", tensor, options.reduceOp));
}

CpuBackend::WorkPointer CpuBackend::allreduce_sparse(Tensors& tensors,
                                                     const c10d::AllreduceOptions& options) {
  const at::Tensor& tensor = single("all_reduce_sparse", tensors);
  return enqueue(OpType::_ALLREDUCE_SPARSE, of_any_size(meta_of("all_reduce_sparse", tensor)), options,
                 tensors, {}, sparse_all_reduce(tensor, options.reduceOp, getSize()));
}

CpuBackend::WorkPointer CpuBackend::allreduce_coalesced(Tensors& tensors,
                                                        const c10d::AllreduceCoalescedOptions& options) {
  HostStaging copies;
  const Tensors own = copies.of(tensors);
  return enqueue(OpType::ALLREDUCE_COALESCED, meta_of("all_reduce_coalesced", own), options, tensors,
                 std::move(copies), one_after_the_other(own.size(), own.size(), [&](std::size_t i) {
                   return all_reduce_of("all_reduce_coalesced", own[i], options.reduceOp);
                 }));
}

CpuBackend::WorkPointer CpuBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  HostStaging copies;
  const at::Tensor tensor = copies.of(single("broadcast", tensors));
  const TensorCollective collective{.operation = Operation::broadcast,
                                    .elements = elements_of("broadcast", tensor),
                                    .root = static_cast<int>(options.rootRank),
                                    .own = tensor};
  return enqueue(OpType::BROADCAST, meta_of("broadcast", tensor), options, tensors, std::move(copies),
                 collective);
}

CpuBackend::WorkPointer CpuBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  HostStaging copies;
  const at::Tensor tensor = copies.of(single("reduce", tensors));
  const TensorCollective collective{.operation = Operation::reduce,
                                    .elements = elements_of("reduce", tensor),
                                    .reduction = reduction_of(options.reduceOp, tensor),
                                    .root = static_cast<int>(options.rootRank),
                                    .own = tensor};
  return enqueue(OpType::REDUCE, meta_of("reduce", tensor), options, tensors, std::move(copies), collective);
}

CpuBackend::WorkPointer CpuBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) {
  HostStaging copies;
  const at::Tensor input = copies.of(single("all_gather", inputs));
  const auto collective = all_gather_of("all_gather", copies.of(front_of(outputs)), input, getSize());
  return enqueue(OpType::ALLGATHER, meta_of("all_gather", input), options, front_of(outputs),
                 std::move(copies), collective);
}

/// `outputs[r][i]` receives `inputs[i]` of rank r.
CpuBackend::WorkPointer CpuBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                        const c10d::AllgatherOptions& options) {
  HostStaging copies;
  const Tensors own = copies.of(inputs);
  const Run run = one_after_the_other(own.size(), own.size(), [&](std::size_t i) {
    Tensors list;
    for (const auto& of_rank : outputs) list.push_back(copies.of(of_rank.at(i)));
    return all_gather_of("all_gather_coalesced", list, own[i], getSize());
  });
  return enqueue(OpType::ALLGATHER_COALESCED, meta_of("all_gather_coalesced", own), options, {},
                 std::move(copies), run);
}

CpuBackend::WorkPointer CpuBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                    const c10d::AllgatherOptions& options) {
  HostStaging copies;
  const at::Tensor from = copies.of(input), to = copies.of(output);
  return enqueue(OpType::_ALLGATHER_BASE, meta_of("all_gather_into_tensor", from), options, {output},
                 std::move(copies), all_gather_into(to, from, getSize()));
}

CpuBackend::WorkPointer CpuBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                    const c10d::AllgatherOptions& options) {
  HostStaging copies;
  const Tensors from = copies.of(inputs), to = copies.of(outputs);
  return enqueue(OpType::COALESCED, meta_of("all_gather_into_tensor_coalesced", from), options, outputs,
                 std::move(copies), one_after_the_other(to.size(), from.size(), [&](std::size_t i) {
                   return all_gather_into(to[i], from[i], getSize());
                 }));
}

CpuBackend::WorkPointer CpuBackend::gather(TensorLists& outputs, Tensors& inputs,
                                           const c10d::GatherOptions& options) {
  HostStaging copies;
  const at::Tensor input = copies.of(single("gather", inputs));
  auto collective = with_list("gather", Operation::gather, input, copies.of(front_of(outputs)));
  collective.root = static_cast<int>(options.rootRank);
  if (getRank() == collective.root) check_count("gather", "output", collective.held, getSize());
  return enqueue(OpType::GATHER, meta_of("gather", input), options, front_of(outputs), std::move(copies),
                 collective);
}

CpuBackend::WorkPointer CpuBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                            const c10d::ScatterOptions& options) {
  HostStaging copies;
  const at::Tensor output = copies.of(single("scatter", outputs));
  auto collective = with_list("scatter", Operation::scatter, output, copies.of(front_of(inputs)));
  collective.root = static_cast<int>(options.rootRank);
  if (getRank() == collective.root) check_count("scatter", "input", collective.held, getSize());
  return enqueue(OpType::SCATTER, meta_of("scatter", output), options, outputs, std::move(copies),
                 collective);
}

CpuBackend::WorkPointer CpuBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                   const c10d::ReduceScatterOptions& options) {
  HostStaging copies;
  const at::Tensor output = copies.of(single("reduce_scatter", outputs));
  auto collective =
      with_list("reduce_scatter", Operation::reduce_scatter, output, copies.of(front_of(inputs)));
  check_count("reduce_scatter", "input", collective.held, getSize());
  collective.reduction = reduction_of(options.reduceOp, output);
  return enqueue(OpType::REDUCE_SCATTER, meta_of("reduce_scatter", output), options, outputs,
                 std::move(copies), collective);
}

CpuBackend::WorkPointer CpuBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                         const c10d::ReduceScatterOptions& options) {
  HostStaging copies;
  const at::Tensor from = copies.of(input), to = copies.of(output);
  return enqueue(OpType::_REDUCE_SCATTER_BASE, meta_of("reduce_scatter_tensor", to), options, {output},
                 std::move(copies), reduce_scatter_into(to, from, options.reduceOp, getSize()));
}

CpuBackend::WorkPointer CpuBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  HostStaging copies;
  const Tensors from = copies.of(inputs), to = copies.of(outputs);
  return enqueue(OpType::COALESCED, meta_of("reduce_scatter_tensor_coalesced", to), options, outputs,
                 std::move(copies), one_after_the_other(to.size(), from.size(), [&](std::size_t i) {
                   return reduce_scatter_into(to[i], from[i], options.reduceOp, getSize());
                 }));
}

CpuBackend::WorkPointer CpuBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                  Splits& output_splits, Splits& input_splits,
                                                  const c10d::AllToAllOptions& options) {
  HostStaging copies;
  const at::Tensor from = copies.of(input), to = copies.of(output);
  if (from.scalar_type() != to.scalar_type())
    throw UsageError("all_to_all: the output must be of the input's dtype");
  const RowCounts rows{rows_of(from, input_splits, getSize()), rows_of(to, output_splits, getSize())};
  const TensorCollective collective{.operation = Operation::all_to_all,
                                    .elements = {0, dtype_of(from.scalar_type())},
                                    .sent = parts_of(from, rows.gives),
                                    .received = parts_of(to, rows.takes),
                                    .held = {from, to}};
  return enqueue(OpType::ALLTOALL_BASE, of_any_size(meta_of("all_to_all_single", from)), options, {output},
                 std::move(copies), collective, &rows);
}

CpuBackend::WorkPointer CpuBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                             const c10d::AllToAllOptions& options) {
  check_lists(outputs, inputs, getSize());
  HostStaging copies;
  const Tensors from = contiguous(copies.of(inputs)), to = copies.of(outputs), space = contiguous(to);
  const TensorCollective collective{.operation = Operation::all_to_all,
                                    .elements = {0, dtype_of(from.front().scalar_type())},
                                    .sent = parts_of(from),
                                    .received = parts_of(space),
                                    .held = from};
  return enqueue(OpType::ALLTOALL, of_any_size(meta_of("all_to_all", from)), options, outputs,
                 std::move(copies),
                 [collective, to, space, caller = at::ThreadLocalState()](Transport& transport) {
                   collective(transport);
                   // A worker does not have the caller's inference mode.
                   const at::ThreadLocalStateGuard as_the_caller(caller);
                   for (std::size_t r = 0; r < to.size(); ++r) {
                     if (!to[r].is_same(space[r])) to[r].detach().copy_(space[r]);
                   }
                 });
}

CpuBackend::WorkPointer CpuBackend::barrier(const c10d::BarrierOptions& options) {
  return enqueue(OpType::BARRIER, OpMeta{.name = "c10d_barrier"}, options, {}, {},
                 TensorCollective{.operation = Operation::barrier});
}

/// Runs in the calling thread; the wait for its end is MessageWork's.
CpuBackend::WorkPointer CpuBackend::start_message(OpType type, OpMeta meta, Tensors& tensors, int peer,
                                                  int tag) {
  HostStaging copies;
  const at::Tensor tensor = copies.of(single(meta.name, tensors));
  elements_of(meta.name, tensor);
  if (tag >= kFirstOwnTag) {
    throw UsageError(
        fmt::format("{}: tags from {} on are this library's own, got {}", meta.name, kFirstOwnTag, tag));
  }
  meta.is_message = true;
  meta.tag = tag;
  meta.peer = peer;
  const OperationId id = tracker_->begin(meta);
  try {
    auto message =
        type == OpType::SEND ? transport_->send(tensor, peer, tag) : transport_->recv(tensor, peer, tag);
    const auto arrived = [type, copies = std::move(copies)] {
      if (type != OpType::SEND) copies.copy_back();
    };
    return c10::make_intrusive<MessageWork>(type, std::move(message), tensors, tracker_, id, message_waits_,
                                            arrived);
  } catch (...) {
    tracker_->explain_and_rethrow(id);
  }
}

CpuBackend::WorkPointer CpuBackend::send(Tensors& tensors, int destination, int tag) {
  return start_message(OpType::SEND, meta_of("send", tensors), tensors, destination, tag);
}

CpuBackend::WorkPointer CpuBackend::recv(Tensors& tensors, int source, int tag) {
  return start_message(OpType::RECV, meta_of("recv", tensors), tensors, source, tag);
}

CpuBackend::WorkPointer CpuBackend::recvAnysource(Tensors& tensors, int tag) {
  return start_message(OpType::RECVANYSOURCE, meta_of("recv_any_source", tensors), tensors, -1, tag);
}

shm::Group* shared_memory_of(c10d::ProcessGroup& group) noexcept {
  try {
    const auto* const backend = dynamic_cast<CpuBackend*>(group.getBackend(at::kCPU).get());
    return backend == nullptr ? nullptr : backend->transport().memory();
  } catch (const c10::Error&) {
    return nullptr;
  }
}

std::shared_ptr<shm::Heap> shared_heap_of(c10d::ProcessGroup& group) {
  shm::Group* const memory = shared_memory_of(group);
  return memory == nullptr ? nullptr : memory->heap();
}

const CpuBackend* cpu_backend_of(const ProcessGroup& group) {
  return dynamic_cast<const CpuBackend*>(group.c10d_process_group()->getBackend(at::kCPU).get());
}

}  // namespace lockstep::comm
