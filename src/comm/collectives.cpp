#include <fmt/core.h>

#include <ATen/ops/empty_like.h>

#include <utility>

#include "comm/backend/operation_queue.hpp"
#include "comm/c10d_handles.hpp"
#include "comm/errors.hpp"
#include "comm/process_group_impl.hpp"
#include "comm/transport/tensor_memory.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

using Tensors = std::vector<at::Tensor>;

// Ours have c10d's numbers.
static_assert(static_cast<int>(ReduceOp::sum) == c10d::ReduceOp::SUM &&
              static_cast<int>(ReduceOp::avg) == c10d::ReduceOp::AVG &&
              static_cast<int>(ReduceOp::product) == c10d::ReduceOp::PRODUCT &&
              static_cast<int>(ReduceOp::min) == c10d::ReduceOp::MIN &&
              static_cast<int>(ReduceOp::max) == c10d::ReduceOp::MAX &&
              static_cast<int>(ReduceOp::bit_and) == c10d::ReduceOp::BAND &&
              static_cast<int>(ReduceOp::bit_or) == c10d::ReduceOp::BOR &&
              static_cast<int>(ReduceOp::bit_xor) == c10d::ReduceOp::BXOR);

/// A reduction as the backend can do it, and what is left to do with the result.
struct Reduction {
  c10d::ReduceOp op;
  std::function<void()> finish;
};

/// Gloo knows no average: it is a sum, divided afterwards.
Reduction plan(ReduceOp op, const at::Tensor& result, int size, CommBackend backend) {
  const c10d::ReduceOp same = static_cast<c10d::ReduceOp::RedOpType>(op);
  if (op != ReduceOp::avg) return {same, nullptr};
  if (!result.is_floating_point() && !result.is_complex()) {
    throw UsageError(fmt::format("ReduceOp::avg needs a floating point tensor, not {}",
                                 c10::toString(result.scalar_type())));
  }
  if (result.is_cuda() && backend != CommBackend::gloo) return {same, nullptr};
  return {c10d::ReduceOp::SUM, [result, size] { result.detach().div_(size); }};
}

/// The backends read and write memory from the first element on, as many elements as the tensor has.
void check_in_one_piece(const char* operation, const at::Tensor& tensor) {
  if (tensor.is_non_overlapping_and_dense()) return;
  throw UsageError(
      fmt::format("{}: the tensor is not one piece of memory (strides of a column, or expanded); pass "
                  "tensor.contiguous()",
                  operation));
}

void check_contiguous(const char* operation, const at::Tensor& tensor) {
  if (tensor.is_contiguous()) return;
  throw UsageError(fmt::format("{}: a tensor is not contiguous; pass tensor.contiguous()", operation));
}

void check_contiguous(const char* operation, const Tensors& tensors) {
  for (const auto& tensor : tensors) check_contiguous(operation, tensor);
}

Tensors like(const at::Tensor& input, int count) {
  Tensors result;
  result.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) result.push_back(at::empty_like(input, at::MemoryFormat::Contiguous));
  return result;
}

}  // namespace

template <class Start>
Work ProcessGroup::Impl::launch(const char* name, const at::Tensor& tensor, Start&& start,
                                std::function<void()> finish) {
  Operation operation{.name = name, .number = 0, .who = who, .tensor = tensor};
  auto work = comm::translated(std::forward<Start>(start), [&] { return operation.describe(); });
  operation.number = static_cast<std::int64_t>(work->getSequencenumber());
  return Work(std::make_shared<Work::Impl>(std::move(work), std::move(operation), std::move(finish)));
}

/// Not by c10d's dispatcher, which costs more than a small operation and has nothing to choose here.
c10d::Backend& ProcessGroup::Impl::carrier_of(const at::Tensor& tensor) const {
  return *connections->group->getBackend(tensor.device().type());
}

comm::CpuBackend* ProcessGroup::Impl::inline_carrier_of(const at::Tensor& tensor) const {
  return tensor.is_cpu() && tensor.layout() == at::kStrided ? connections->cpu : nullptr;
}

void ProcessGroup::Impl::check_rank(const char* operation, const char* role, int other) const {
  if (other >= 0 && other < members.size()) return;
  throw UsageError(fmt::format("{}: {} {} is not a rank of this group: expected 0 to {}", operation, role,
                               other, members.size() - 1));
}

Work ProcessGroup::all_reduce_async(const at::Tensor& tensor, ReduceOp op) const {
  check_in_one_piece("all_reduce", tensor);
  auto [operation, finish] = plan(op, tensor, size(), impl_->options.backend);
  Tensors tensors{tensor};
  c10d::AllreduceOptions options;
  options.reduceOp = operation;
  return impl_->launch(
      "all_reduce", tensor, [&] { return impl_->carrier_of(tensor).allreduce(tensors, options); }, finish);
}

Work ProcessGroup::broadcast_async(const at::Tensor& tensor, int root) const {
  check_in_one_piece("broadcast", tensor);
  impl_->check_rank("broadcast", "root", root);
  Tensors tensors{tensor};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  return impl_->launch("broadcast", tensor,
                       [&] { return impl_->carrier_of(tensor).broadcast(tensors, options); });
}

Work ProcessGroup::reduce_async(const at::Tensor& tensor, int root, ReduceOp op) const {
  check_in_one_piece("reduce", tensor);
  impl_->check_rank("reduce", "root", root);
  auto [operation, finish] = plan(op, tensor, size(), impl_->options.backend);
  Tensors tensors{tensor};
  c10d::ReduceOptions options;
  options.reduceOp = operation;
  options.rootRank = root;
  if (rank() != root) finish = nullptr;
  return impl_->launch(
      "reduce", tensor, [&] { return impl_->carrier_of(tensor).reduce(tensors, options); }, finish);
}

Work ProcessGroup::all_gather_async(const Tensors& outputs, const at::Tensor& input) const {
  check_contiguous("all_gather", outputs);
  check_contiguous("all_gather", input);
  comm::check_count("all_gather", "output", outputs, size());
  std::vector<Tensors> lists{outputs};
  Tensors inputs{input};
  return impl_->launch("all_gather", input,
                       [&] { return impl_->carrier_of(input).allgather(lists, inputs); });
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
                       [&] { return impl_->carrier_of(input)._allgather_base(to, from); });
}

Work ProcessGroup::gather_async(const Tensors& outputs, const at::Tensor& input, int root) const {
  check_contiguous("gather", outputs);
  check_contiguous("gather", input);
  impl_->check_rank("gather", "root", root);
  if (rank() == root) comm::check_count("gather", "output", outputs, size());
  std::vector<Tensors> lists;
  if (rank() == root) lists.push_back(outputs);
  Tensors inputs{input};
  c10d::GatherOptions options;
  options.rootRank = root;
  return impl_->launch("gather", input,
                       [&] { return impl_->carrier_of(input).gather(lists, inputs, options); });
}

Work ProcessGroup::scatter_async(const at::Tensor& output, const Tensors& inputs, int root) const {
  check_contiguous("scatter", inputs);
  check_contiguous("scatter", output);
  impl_->check_rank("scatter", "root", root);
  if (rank() == root) comm::check_count("scatter", "input", inputs, size());
  std::vector<Tensors> lists;
  if (rank() == root) lists.push_back(inputs);
  Tensors outputs{output};
  c10d::ScatterOptions options;
  options.rootRank = root;
  return impl_->launch("scatter", output,
                       [&] { return impl_->carrier_of(output).scatter(outputs, lists, options); });
}

Work ProcessGroup::reduce_scatter_async(const at::Tensor& output, const Tensors& inputs, ReduceOp op) const {
  check_contiguous("reduce_scatter", inputs);
  check_contiguous("reduce_scatter", output);
  comm::check_count("reduce_scatter", "input", inputs, size());
  auto [operation, finish] = plan(op, output, size(), impl_->options.backend);
  Tensors outputs{output};
  std::vector<Tensors> lists{inputs};
  c10d::ReduceScatterOptions options;
  options.reduceOp = operation;
  return impl_->launch(
      "reduce_scatter", output,
      [&] { return impl_->carrier_of(output).reduce_scatter(outputs, lists, options); }, finish);
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
  c10d::ReduceScatterOptions options;
  options.reduceOp = operation;
  return impl_->launch(
      "reduce_scatter_tensor", output,
      [&] { return impl_->carrier_of(output)._reduce_scatter_base(to, from, options); }, finish);
}

Work ProcessGroup::all_to_all_single_async(const at::Tensor& output, const at::Tensor& input,
                                           const std::vector<std::int64_t>& output_split_sizes,
                                           const std::vector<std::int64_t>& input_split_sizes) const {
  check_contiguous("all_to_all_single", {output, input});
  at::Tensor to = output;
  at::Tensor from = input;
  std::vector<std::int64_t> to_splits = output_split_sizes;
  std::vector<std::int64_t> from_splits = input_split_sizes;
  return impl_->launch("all_to_all_single", input, [&] {
    return impl_->carrier_of(input).alltoall_base(to, from, to_splits, from_splits);
  });
}

Work ProcessGroup::all_to_all_async(const Tensors& outputs, const Tensors& inputs) const {
  comm::check_lists(outputs, inputs, size());
  Tensors to = outputs, from = inputs;
  return impl_->launch("all_to_all", inputs.front(),
                       [&] { return impl_->carrier_of(inputs.front()).alltoall(to, from); });
}

Work ProcessGroup::send_async(const at::Tensor& tensor, int destination, int tag) const {
  check_in_one_piece("send", tensor);
  impl_->check_rank("send", "destination", destination);
  if (destination == rank()) throw UsageError(fmt::format("send: rank {} cannot send to itself", rank()));
  Tensors tensors{tensor};
  return impl_->launch("send", tensor,
                       [&] { return impl_->carrier_of(tensor).send(tensors, destination, tag); });
}

Work ProcessGroup::recv_async(const at::Tensor& tensor, int source, int tag) const {
  check_in_one_piece("recv", tensor);
  impl_->check_rank("recv", "source", source);
  if (source == rank()) throw UsageError(fmt::format("recv: rank {} cannot receive from itself", rank()));
  Tensors tensors{tensor};
  return impl_->launch("recv", tensor, [&] { return impl_->carrier_of(tensor).recv(tensors, source, tag); });
}

int ProcessGroup::recv_any_source(const at::Tensor& tensor, int tag) const {
  check_in_one_piece("recv_any_source", tensor);
  const comm::CallerWaits waits;
  Tensors tensors{tensor};
  Work work = impl_->launch("recv_any_source", tensor,
                            [&] { return impl_->carrier_of(tensor).recvAnysource(tensors, tag); });
  work.wait();
  return work.source_rank();
}

// ---- The forms that wait

void ProcessGroup::all_reduce(const at::Tensor& tensor, ReduceOp op) const {
  comm::CpuBackend* const carrier = impl_->inline_carrier_of(tensor);
  if (carrier == nullptr) {
    const comm::CallerWaits waits;
    return all_reduce_async(tensor, op).wait();
  }
  check_in_one_piece("all_reduce", tensor);
  const auto [operation, finish] = plan(op, tensor, size(), impl_->options.backend);
  carrier->all_reduce_now(tensor, operation);
  if (finish) finish();
}

void ProcessGroup::broadcast(const at::Tensor& tensor, int root) const {
  const comm::CallerWaits waits;
  broadcast_async(tensor, root).wait();
}

void ProcessGroup::reduce(const at::Tensor& tensor, int root, ReduceOp op) const {
  const comm::CallerWaits waits;
  reduce_async(tensor, root, op).wait();
}

Tensors ProcessGroup::all_gather(const at::Tensor& input) const {
  const comm::CallerWaits waits;
  Tensors outputs = like(input, size());
  all_gather_async(outputs, input.contiguous()).wait();
  return outputs;
}

void ProcessGroup::all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input) const {
  const comm::CallerWaits waits;
  all_gather_into_tensor_async(output, input).wait();
}

Tensors ProcessGroup::gather(const at::Tensor& input, int root) const {
  const comm::CallerWaits waits;
  Tensors outputs = rank() == root ? like(input, size()) : Tensors{};
  gather_async(outputs, input.contiguous(), root).wait();
  return outputs;
}

void ProcessGroup::scatter(const at::Tensor& output, const Tensors& inputs, int root) const {
  const comm::CallerWaits waits;
  scatter_async(output, inputs, root).wait();
}

void ProcessGroup::reduce_scatter(const at::Tensor& output, const Tensors& inputs, ReduceOp op) const {
  const comm::CallerWaits waits;
  reduce_scatter_async(output, inputs, op).wait();
}

void ProcessGroup::reduce_scatter_tensor(const at::Tensor& output, const at::Tensor& input,
                                         ReduceOp op) const {
  const comm::CallerWaits waits;
  reduce_scatter_tensor_async(output, input, op).wait();
}

void ProcessGroup::all_to_all(const Tensors& outputs, const Tensors& inputs) const {
  const comm::CallerWaits waits;
  all_to_all_async(outputs, inputs).wait();
}

void ProcessGroup::all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                                     const std::vector<std::int64_t>& output_split_sizes,
                                     const std::vector<std::int64_t>& input_split_sizes) const {
  const comm::CallerWaits waits;
  all_to_all_single_async(output, input, output_split_sizes, input_split_sizes).wait();
}

void ProcessGroup::send(const at::Tensor& tensor, int destination, int tag) const {
  const comm::CallerWaits waits;
  send_async(tensor, destination, tag).wait();
}

void ProcessGroup::recv(const at::Tensor& tensor, int source, int tag) const {
  const comm::CallerWaits waits;
  recv_async(tensor, source, tag).wait();
}

}  // namespace lockstep
