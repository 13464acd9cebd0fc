#include <ATen/ThreadLocalState.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <vector>

#include "comm/backend/cpu_backend.hpp"
#include "comm/transport/tensor_memory.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::comm {
namespace {

/// Sparse dimensions, dense dimensions, number of nonzero values, elements of the whole tensor.
using Shape = std::array<std::int64_t, 4>;

std::vector<Shape> gather_shapes(Transport& transport, const at::Tensor& own, int size) {
  Shape shape{own.sparse_dim(), own.dense_dim(), own._nnz(), own.numel()};
  std::vector<Shape> all(static_cast<std::size_t>(size));
  std::vector<void*> places;
  for (auto& each : all) places.push_back(each.data());
  transport.run({.operation = shm::Operation::all_gather,
                 .elements = {shape.size(), shm::Dtype::i64},
                 .own = shape.data(),
                 .of_ranks = places});
  for (const auto& each : all) {
    if (each[0] == shape[0] && each[1] == shape[1] && each[3] == shape[3]) continue;
    throw CommunicationError(fmt::format(
        "all_reduce of sparse tensors: this rank's has {} sparse and {} dense dimensions and {} elements, "
        "another's {}, {} and {}: give tensors of one shape",
        shape[0], shape[1], shape[3], each[0], each[1], each[3]));
  }
  return all;
}

/// Gathers each rank's entries along `dimension`: the first `shapes[r][2]` of rank r.
std::vector<at::Tensor> gather_padded(Transport& transport, const at::Tensor& own, std::int64_t dimension,
                                      const std::vector<Shape>& shapes) {
  std::int64_t most = 0;
  for (const auto& shape : shapes) most = std::max(most, shape[2]);
  auto sizes = own.sizes().vec();
  sizes[static_cast<std::size_t>(dimension)] = most;
  const at::Tensor padded = at::empty(sizes, own.options()).zero_();
  padded.narrow(dimension, 0, own.size(dimension)).copy_(own);
  std::vector<at::Tensor> all;
  std::vector<void*> places;
  for (std::size_t r = 0; r < shapes.size(); ++r) all.push_back(at::empty(sizes, own.options()));
  for (auto& each : all) places.push_back(each.data_ptr());
  transport.run({.operation = shm::Operation::all_gather,
                 .elements = elements_of("all_reduce_sparse", padded),
                 .own = padded.data_ptr(),
                 .of_ranks = places});
  for (std::size_t r = 0; r < all.size(); ++r) all[r] = all[r].narrow(dimension, 0, shapes[r][2]);
  return all;
}

void gather_and_sum(Transport& transport, const at::Tensor& tensor, int size) {
  const at::Tensor own = tensor.detach().coalesce();
  const auto shapes = gather_shapes(transport, own, size);
  const auto indices = gather_padded(transport, own.indices(), 1, shapes);
  const auto values = gather_padded(transport, own.values(), 0, shapes);
  at::Tensor sum;
  for (std::size_t r = 0; r < shapes.size(); ++r) {
    const at::Tensor of_rank = at::sparse_coo_tensor(indices[r], values[r], own.sizes(), own.options());
    sum = r == 0 ? of_rank : sum + of_rank;
  }
  const at::NoGradGuard no_gradients;
  tensor.copy_(sum.coalesce());
}

}  // namespace

CpuBackend::Run CpuBackend::sparse_all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op, int size) {
  if (op != c10d::ReduceOp::SUM)
    throw UsageError(fmt::format("all_reduce of a sparse tensor: expected sum, but got {}",
                                 shm::name_of(reduction_of(op))));
  return [tensor, size, caller = at::ThreadLocalState()](Transport& transport) {
    // A worker does not have the caller's inference and gradient modes.
    const at::ThreadLocalStateGuard as_the_caller(caller);
    gather_and_sum(transport, tensor, size);
  };
}

}  // namespace lockstep::comm
