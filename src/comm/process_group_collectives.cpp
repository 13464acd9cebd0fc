#include <fmt/core.h>

#include <ATen/ops/empty_like.h>

#include <utility>

#include "comm/backend/operation_queue.hpp"
#include "comm/errors.hpp"
#include "comm/in_order.hpp"
#include "comm/p2p_batch.hpp"
#include "comm/process_group_impl.hpp"
#include "comm/transport/tensor_memory.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

using Tensors = std::vector<at::Tensor>;

/// A reduction that the backend supports, and what is left to do with the result.
struct Reduction {
  c10d::ReduceOp op;
  std::function<void()> finish;
};

/// Gloo has no average: it is computed as a sum and divided afterwards.
Reduction plan(ReduceOp op, const at::Tensor& result, int size, CommBackend backend) {
  const c10d::ReduceOp same = static_cast<c10d::ReduceOp::RedOpType>(op);
  if (op != ReduceOp::avg) return {same, nullptr};
  if (!result.is_floating_point() && !result.is_complex()) {
    throw UsageError(fmt::format("ReduceOp::avg needs a floating point tensor, not {}",
                                 c10::toString(result.scalar_type())));
  }
  if (result.is_cuda() && backend != CommBackend::gloo) return {same, nullptr};
  return {c10d::ReduceOp::SUM, [result, size] {
            const at::Tensor values = result.detach();
            // As PyTorch does, because the division of complex numbers rounds otherwise.
            (values.is_complex() ? at::view_as_real(values) : values).div_(size);
          }};
}

void check_contiguous(const char* operation, const Tensors& tensors) {
  for (const auto& tensor : tensors) {
    comm::check_strided(operation, tensor);
    if (tensor.is_contiguous()) continue;
    throw UsageError(fmt::format("{}: a tensor is not contiguous; pass tensor.contiguous()", operation));
  }
}

Tensors like(const at::Tensor& input, int count) {
  Tensors result;
  result.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) result.push_back(at::empty_like(input, at::MemoryFormat::Contiguous));
  return result;
}

/// The blocking form: the operation runs in this thread.
template <class Start>
void wait_for(const Start& start) {
  const comm::CallerWaits waits;
  start().wait();
}

}  // namespace

Work ProcessGroup::all_reduce_async(const at::Tensor& tensor, ReduceOp op) const {
  if (!tensor.is_sparse()) comm::check_in_one_piece("all_reduce", tensor);
  const comm::InOrder ordered(tensor);
  auto [operation, finish] = plan(op, ordered.tensor, size(), impl_->options.backend);
  Tensors tensors{ordered.tensor};
  const c10d::AllreduceOptions options{.reduceOp = operation};
  return impl_->launch(
      "all_reduce", tensor, [&](c10d::Backend& backend) { return backend.allreduce(tensors, options); },
      ordered.after(finish));
}

Work ProcessGroup::broadcast_async(const at::Tensor& tensor, int root) const {
  comm::check_in_one_piece("broadcast", tensor);
  impl_->check_rank("broadcast", "root", root);
  const comm::InOrder ordered(tensor);
  Tensors tensors{ordered.tensor};
  const c10d::BroadcastOptions options{.rootRank = root};
  return impl_->launch(
      "broadcast", tensor, [&](c10d::Backend& backend) { return backend.broadcast(tensors, options); },
      rank() == root ? nullptr : ordered.write_back);
}

Work ProcessGroup::reduce_async(const at::Tensor& tensor, int root, ReduceOp op) const {
  comm::check_in_one_piece("reduce", tensor);
  impl_->check_rank("reduce", "root", root);
  const comm::InOrder ordered(tensor);
  auto [operation, finish] = plan(op, ordered.tensor, size(), impl_->options.backend);
  Tensors tensors{ordered.tensor};
  const c10d::ReduceOptions options{.reduceOp = operation, .rootRank = root};
  return impl_->launch(
      "reduce", tensor, [&](c10d::Backend& backend) { return backend.reduce(tensors, options); },
      rank() == root ? ordered.after(finish) : nullptr);
}

Work ProcessGroup::all_gather_async(const Tensors& outputs, const at::Tensor& input) const {
  check_contiguous("all_gather", outputs);
  check_contiguous("all_gather", {input});
  comm::check_count("all_gather", "output", outputs, size());
  std::vector<Tensors> lists{outputs};
  Tensors inputs{input};
  return impl_->launch("all_gather", input,
                       [&](c10d::Backend& backend) { return backend.allgather(lists, inputs); });
}

Work ProcessGroup::all_gather_into_tensor_async(const at::Tensor& output, const at::Tensor& input) const {
  check_contiguous("all_gather_into_tensor", {output, input});
  if (output.numel() != input.numel() * size()) {
    throw UsageError(fmt::format("all_gather_into_tensor: expected an output of {} elements, but it has {}",
                                 input.numel() * size(), output.numel()));
  }
  at::Tensor to = output.view({-1});
  at::Tensor from = input.view({-1});
  return impl_->launch("all_gather_into_tensor", input,
                       [&](c10d::Backend& backend) { return backend._allgather_base(to, from); });
}

Work ProcessGroup::gather_async(const Tensors& outputs, const at::Tensor& input, int root) const {
  check_contiguous("gather", outputs);
  check_contiguous("gather", {input});
  impl_->check_rank("gather", "root", root);
  if (rank() == root) comm::check_count("gather", "output", outputs, size());
  std::vector<Tensors> lists;
  if (rank() == root) lists.push_back(outputs);
  Tensors inputs{input};
  const c10d::GatherOptions options{.rootRank = root};
  return impl_->launch("gather", input,
                       [&](c10d::Backend& backend) { return backend.gather(lists, inputs, options); });
}

Work ProcessGroup::scatter_async(const at::Tensor& output, const Tensors& inputs, int root) const {
  check_contiguous("scatter", inputs);
  check_contiguous("scatter", {output});
  impl_->check_rank("scatter", "root", root);
  if (rank() == root) comm::check_count("scatter", "input", inputs, size());
  std::vector<Tensors> lists;
  if (rank() == root) lists.push_back(inputs);
  Tensors outputs{output};
  const c10d::ScatterOptions options{.rootRank = root};
  return impl_->launch("scatter", output,
                       [&](c10d::Backend& backend) { return backend.scatter(outputs, lists, options); });
}

Work ProcessGroup::reduce_scatter_async(const at::Tensor& output, const Tensors& inputs, ReduceOp op) const {
  check_contiguous("reduce_scatter", inputs);
  check_contiguous("reduce_scatter", {output});
  comm::check_count("reduce_scatter", "input", inputs, size());
  auto [operation, finish] = plan(op, output, size(), impl_->options.backend);
  Tensors outputs{output};
  std::vector<Tensors> lists{inputs};
  const c10d::ReduceScatterOptions options{.reduceOp = operation};
  return impl_->launch(
      "reduce_scatter", output,
      [&](c10d::Backend& backend) { return backend.reduce_scatter(outputs, lists, options); }, finish);
}

Work ProcessGroup::reduce_scatter_tensor_async(const at::Tensor& output, const at::Tensor& input,
                                               ReduceOp op) const {
  check_contiguous("reduce_scatter_tensor", {output, input});
  if (input.numel() != output.numel() * size()) {
    throw UsageError(fmt::format("reduce_scatter_tensor: expected an input of {} elements, but it has {}",
                                 output.numel() * size(), input.numel()));
  }
  auto [operation, finish] = plan(op, output, size(), impl_->options.backend);
  at::Tensor to = output;
  at::Tensor from = input;
  const c10d::ReduceScatterOptions options{.reduceOp = operation};
  return impl_->launch(
      "reduce_scatter_tensor", output,
      [&](c10d::Backend& backend) { return backend._reduce_scatter_base(to, from, options); }, finish);
}

Work ProcessGroup::all_to_all_single_async(const at::Tensor& output, const at::Tensor& input,
                                           const std::vector<std::int64_t>& output_split_sizes,
                                           const std::vector<std::int64_t>& input_split_sizes) const {
  check_contiguous("all_to_all_single", {output, input});
  at::Tensor to = output;
  at::Tensor from = input;
  std::vector<std::int64_t> to_splits = output_split_sizes;
  std::vector<std::int64_t> from_splits = input_split_sizes;
  return impl_->launch("all_to_all_single", input, [&](c10d::Backend& backend) {
    return backend.alltoall_base(to, from, to_splits, from_splits);
  });
}

Work ProcessGroup::all_to_all_async(const Tensors& outputs, const Tensors& inputs) const {
  comm::check_lists(outputs, inputs, size());
  Tensors to = outputs, from = inputs;
  return impl_->launch("all_to_all", inputs.front(),
                       [&](c10d::Backend& backend) { return backend.alltoall(to, from); });
}

Work ProcessGroup::send_async(const at::Tensor& tensor, int destination, int tag) const {
  impl_->check_message("send", {P2POp::Op::isend, tensor, destination});
  Tensors tensors{comm::InOrder(tensor).tensor};
  return impl_->launch("send", tensor,
                       [&](c10d::Backend& backend) { return backend.send(tensors, destination, tag); });
}

Work ProcessGroup::recv_async(const at::Tensor& tensor, int source, int tag) const {
  impl_->check_message("recv", {P2POp::Op::irecv, tensor, source});
  const comm::InOrder ordered(tensor);
  Tensors tensors{ordered.tensor};
  return impl_->launch(
      "recv", tensor, [&](c10d::Backend& backend) { return backend.recv(tensors, source, tag); },
      ordered.write_back);
}

int ProcessGroup::recv_any_source(const at::Tensor& tensor, int tag) const {
  comm::check_in_one_piece("recv_any_source", tensor);
  const comm::CallerWaits waits;
  const comm::InOrder ordered(tensor);
  Tensors tensors{ordered.tensor};
  Work work = impl_->launch(
      "recv_any_source", tensor, [&](c10d::Backend& backend) { return backend.recvAnysource(tensors, tag); },
      ordered.write_back);
  work.wait();
  return work.source_rank();
}

std::vector<Work> ProcessGroup::batch_isend_irecv(const std::vector<P2POp>& operations) const {
  if (operations.empty()) return {};
  const at::Tensor& first = operations.front().tensor;
  for (const auto& operation : operations) {
    impl_->check_message("batch_isend_irecv", operation);
    if (operation.tensor.device() == first.device()) continue;
    throw UsageError(
        fmt::format("batch_isend_irecv: all tensors of a batch must be on one device, got {} and {}: "
                    "make a batch for each",
                    first.device().str(), operation.tensor.device().str()));
  }
  const WorkDescription batch{.name = "batch_isend_irecv", .number = 0, .who = impl_->who, .tensor = first};
  std::vector<P2POp> ordered = operations;
  std::vector<std::function<void()>> write_backs;
  for (auto& operation : ordered) {
    const comm::InOrder in_order(operation.tensor);
    operation.tensor = in_order.tensor;
    write_backs.push_back(operation.op == P2POp::Op::irecv ? in_order.write_back : nullptr);
  }
  const auto started = comm::translated([&] { return comm::start_batch(impl_->backend_of(first), ordered); },
                                        [&] { return batch.describe(); });
  std::vector<Work> works;
  works.reserve(started.size());
  for (std::size_t i = 0; i < started.size(); ++i) {
    WorkDescription description = batch;
    std::function<void()> finish;
    if (started.size() == operations.size()) {
      description.tensor = operations[i].tensor;
      finish = std::move(write_backs[i]);
    } else {
      finish = [write_backs] {
        for (const auto& write_back : write_backs)
          if (write_back) write_back();
      };
    }
    description.number = static_cast<std::int64_t>(started[i]->getSequencenumber());
    works.emplace_back(std::make_shared<Work::Impl>(started[i], std::move(description), std::move(finish)));
  }
  return works;
}

// ---- Blocking forms

void ProcessGroup::all_reduce(const at::Tensor& tensor, ReduceOp op) const {
  // Non-null if the calling thread can run the operation itself.
  comm::CpuBackend* const backend =
      tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.is_contiguous() ? impl_->connections->cpu
                                                                                   : nullptr;
  if (backend == nullptr) return wait_for([&] { return all_reduce_async(tensor, op); });
  comm::check_in_one_piece("all_reduce", tensor);
  const auto [operation, finish] = plan(op, tensor, size(), impl_->options.backend);
  backend->all_reduce_now(tensor, operation);
  if (finish) finish();
}

void ProcessGroup::broadcast(const at::Tensor& tensor, int root) const {
  wait_for([&] { return broadcast_async(tensor, root); });
}

void ProcessGroup::reduce(const at::Tensor& tensor, int root, ReduceOp op) const {
  wait_for([&] { return reduce_async(tensor, root, op); });
}

Tensors ProcessGroup::all_gather(const at::Tensor& input) const {
  comm::check_strided("all_gather", input);
  const comm::CallerWaits waits;
  Tensors outputs = like(input, size());
  all_gather_async(outputs, input.contiguous()).wait();
  return outputs;
}

void ProcessGroup::all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input) const {
  wait_for([&] { return all_gather_into_tensor_async(output, input); });
}

Tensors ProcessGroup::gather(const at::Tensor& input, int root) const {
  comm::check_strided("gather", input);
  const comm::CallerWaits waits;
  Tensors outputs = rank() == root ? like(input, size()) : Tensors{};
  gather_async(outputs, input.contiguous(), root).wait();
  return outputs;
}

void ProcessGroup::scatter(const at::Tensor& output, const Tensors& inputs, int root) const {
  wait_for([&] { return scatter_async(output, inputs, root); });
}

void ProcessGroup::reduce_scatter(const at::Tensor& output, const Tensors& inputs, ReduceOp op) const {
  wait_for([&] { return reduce_scatter_async(output, inputs, op); });
}

void ProcessGroup::reduce_scatter_tensor(const at::Tensor& output, const at::Tensor& input,
                                         ReduceOp op) const {
  wait_for([&] { return reduce_scatter_tensor_async(output, input, op); });
}

void ProcessGroup::all_to_all(const Tensors& outputs, const Tensors& inputs) const {
  wait_for([&] { return all_to_all_async(outputs, inputs); });
}

void ProcessGroup::all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                                     const std::vector<std::int64_t>& output_split_sizes,
                                     const std::vector<std::int64_t>& input_split_sizes) const {
  wait_for([&] { return all_to_all_single_async(output, input, output_split_sizes, input_split_sizes); });
}

void ProcessGroup::send(const at::Tensor& tensor, int destination, int tag) const {
  wait_for([&] { return send_async(tensor, destination, tag); });
}

void ProcessGroup::recv(const at::Tensor& tensor, int source, int tag) const {
  wait_for([&] { return recv_async(tensor, source, tag); });
}

}  // namespace lockstep
