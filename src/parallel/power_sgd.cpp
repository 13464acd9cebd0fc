#include "lockstep/parallel/power_sgd.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/unflatten_dense_tensors.h>
#include <ATen/ops/zeros.h>
#include <fmt/core.h>
#include <algorithm>
#include <cmath>
#include <optional>

#include "lockstep/core/error.hpp"
#include "lockstep/parallel/comm_hooks.hpp"
#include "parallel/orthogonalize.hpp"

namespace lockstep {
namespace {

using Tensors = std::vector<at::Tensor>;

/// Gradients of one shape that are compressed in one operation.
struct Batch {
  Tensors originals;  // Matrices: views into the bucket.
  at::Tensor matrices;
  at::Tensor p;
  at::Tensor q;
};

/// The state between start and finish of a bucket.
struct Compressed {
  std::vector<Batch> batches;
  Tensors uncompressed;
  at::Tensor flat;  // The concatenated uncompressed gradients.
  std::optional<Work> flat_sent = std::nullopt;
  std::optional<Work> ps_sent = std::nullopt;
};

std::int64_t numel_of(const std::vector<Batch>& batches, std::int64_t dimension, std::int64_t most_columns) {
  std::int64_t total = 0;
  for (const auto& batch : batches) {
    const std::int64_t rows = batch.matrices.size(1), columns = batch.matrices.size(2);
    total +=
        batch.matrices.size(0) * batch.matrices.size(dimension) * std::min({rows, columns, most_columns});
  }
  return total;
}

/// The next part of `memory`, as one matrix per matrix of the batch.
at::Tensor part_of(const at::Tensor& memory, std::int64_t& offset, const Batch& batch, std::int64_t rows,
                   std::int64_t most_columns) {
  const std::int64_t columns = std::min({batch.matrices.size(1), batch.matrices.size(2), most_columns});
  const std::int64_t size = batch.matrices.size(0) * rows * columns;
  offset += size;
  return memory.narrow(0, offset - size, size).view({batch.matrices.size(0), rows, columns});
}

/// In the order of first appearance, as in a Python dictionary, even if shapes are not batched.
std::vector<Batch> batches_of(const Tensors& matrices, bool together) {
  std::vector<std::pair<std::vector<std::int64_t>, Tensors>> by_shape;
  for (const auto& matrix : matrices) {
    const auto same = [&](const auto& entry) { return entry.first == matrix.sizes().vec(); };
    auto found = std::find_if(by_shape.begin(), by_shape.end(), same);
    if (found == by_shape.end()) found = by_shape.insert(found, {matrix.sizes().vec(), {}});
    found->second.push_back(matrix);
  }
  std::vector<Batch> batches;
  for (const auto& [shape, members] : by_shape) {
    if (together && members.size() > 1) {
      batches.push_back({members, at::stack(members), {}, {}});
      continue;
    }
    for (const auto& matrix : members) batches.push_back({{matrix}, matrix.unsqueeze(0), {}, {}});
  }
  return batches;
}

void fill_randomly(const at::Tensor& q, at::Generator& generator) {
  q.copy_(at::randn(q.sizes(), generator, at::TensorOptions(at::kCPU).dtype(q.scalar_type())));
}

/// An empty tensor is not sent.
std::optional<Work> sum_of(const ProcessGroup& group, const at::Tensor& tensor) {
  if (tensor.numel() == 0) return std::nullopt;
  return group.all_reduce_async(tensor);
}

void wait_for(std::optional<Work>& work) {
  if (work) work->wait();
}

void unpack_means(const Compressed& compressed, int ranks) {
  if (compressed.uncompressed.empty()) return;
  compressed.flat.div_(ranks);
  at::_foreach_copy_(compressed.uncompressed,
                     at::unflatten_dense_tensors(compressed.flat, compressed.uncompressed));
}

void decompress(const Batch& batch) {
  at::Tensor matrices = batch.matrices;
  at::bmm_out(matrices, batch.p, batch.q.transpose(1, 2));
  if (batch.originals.size() == 1) return;  // The matrix is the gradient itself.
  for (std::size_t i = 0; i < batch.originals.size(); ++i)
    batch.originals[i].copy_(matrices[static_cast<std::int64_t>(i)]);
}

void check_power_sgd_options(const PowerSgdOptions& options) {
  if (options.matrix_approximation_rank < 1)
    throw UsageError("PowerSgdHook: matrix_approximation_rank must be at least 1");
  if ((options.use_error_feedback || options.warm_start) && options.start_iteration <= 1) {
    throw UsageError(
        "PowerSgdHook: start_iteration must be more than 1 with error feedback or warm start, because "
        "buckets "
        "change after the first iteration");
  }
}

/// Separates the gradients worth compressing from the others, and counts both.
std::pair<Tensors, Tensors> divide(const Tensors& gradients, const PowerSgdOptions& options,
                                   CompressionStatistics& statistics) {
  Tensors matrices, others;
  for (const auto& gradient : gradients) {
    const at::Tensor matrix = gradient.view({gradient.dim() == 0 ? 1 : gradient.size(0), -1});
    const std::int64_t rows = matrix.size(0), columns = matrix.size(1);
    const std::int64_t small =
        (rows + columns) * std::min({rows, columns, options.matrix_approximation_rank});
    const bool worth =
        static_cast<double>(small) * options.min_compression_rate < static_cast<double>(matrix.numel());
    (worth ? matrices : others).push_back(worth ? matrix : gradient);
    statistics.before += matrix.numel();
    statistics.after += worth ? small : matrix.numel();
  }
  return {matrices, others};
}

at::Tensor flat_copy(const Tensors& tensors, const at::TensorOptions& options) {
  Tensors rows;
  for (const auto& tensor : tensors) rows.push_back(tensor.view(-1));
  return rows.empty() ? at::empty({0}, options) : at::cat(rows);
}

void assign_memory(std::vector<Batch>& batches, const at::Tensor& ps, const at::Tensor& qs,
                   std::int64_t most_columns) {
  std::int64_t p_offset = 0, q_offset = 0;
  for (auto& batch : batches) {
    batch.p = part_of(ps, p_offset, batch, batch.matrices.size(1), most_columns);
    batch.q = part_of(qs, q_offset, batch, batch.matrices.size(2), most_columns);
  }
}

void prepare_qs(const std::vector<Batch>& batches, std::optional<at::Generator> generator, double epsilon) {
  for (const auto& batch : batches) {
    if (generator) fill_randomly(batch.q, *generator);
    parallel::orthogonalize(batch.q, epsilon);
  }
}

void compute_ps(std::vector<Batch>& batches) {
  for (auto& batch : batches) at::bmm_out(batch.p, batch.matrices, batch.q);
}

void compute_qs(std::vector<Batch>& batches, double epsilon) {
  for (auto& batch : batches) parallel::orthogonalize(batch.p, epsilon);
  for (auto& batch : batches) at::bmm_out(batch.q, batch.matrices.transpose(1, 2), batch.p);
}

/// Without an epsilon, as in the Python hook.
void orthogonalize(const at::Tensor& matrix) { parallel::orthogonalize(matrix.unsqueeze(0), 0); }

/// A copy in a square matrix, padded with zeros.
at::Tensor square_of(const at::Tensor& buffer) {
  const auto side = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(buffer.numel()))));
  at::Tensor square = at::zeros({side, side}, buffer.options());
  square.view(-1).narrow(0, 0, buffer.numel()).copy_(buffer);
  return square;
}

at::Tensor random_matrix(std::uint32_t seed, at::IntArrayRef sizes, const at::Tensor& like) {
  const auto generator = at::detail::createCPUGenerator(seed);
  return at::randn(sizes, generator, at::TensorOptions(at::kCPU).dtype(like.scalar_type())).to(like.device());
}

}  // namespace

PowerSgdHook::PowerSgdHook(const PowerSgdOptions& options) : options_(options), seeds_(options.random_seed) {
  check_power_sgd_options(options);
}

std::string PowerSgdHook::name() const {
  return fmt::format(
      "PowerSGD: matrix_approximation_rank {}, start_iteration {}, min_compression_rate {:g}, "
      "use_error_feedback {:d}, warm_start {:d}, orthogonalization_epsilon {:g}, random_seed {}, "
      "batch_tensors_with_same_shape {:d}",
      options_.matrix_approximation_rank, options_.start_iteration, options_.min_compression_rate,
      options_.use_error_feedback, options_.warm_start, options_.orthogonalization_epsilon,
      options_.random_seed, options_.batch_tensors_with_same_shape);
}

void PowerSgdHook::buckets_changed() {
  errors_.clear();
  ps_.clear();
  qs_.clear();
}

/// As numpy.random.RandomState(seed).randint(1_000_000_000), from which the Python hook takes its seeds.
std::uint32_t PowerSgdHook::next_seed() {
  constexpr std::uint32_t kMask = (1U << 30U) - 1, kMost = 999'999'999;
  std::uint32_t seed = 0;
  do seed = static_cast<std::uint32_t>(seeds_()) & kMask;
  while (seed > kMost);
  return seed;
}

void PowerSgdHook::add_error(std::size_t bucket, const at::Tensor& gradients) {
  if (!options_.use_error_feedback) return;
  at::Tensor& error = errors_[bucket];
  if (error.defined()) gradients.add_(error);
  error = gradients.clone();
}

void PowerSgdHook::keep_error(std::size_t bucket, const at::Tensor& restored) {
  if (options_.use_error_feedback) errors_.at(bucket).sub_(restored);
}

FinishBucket PowerSgdHook::start(const GradientBucket& bucket, const ProcessGroup& group) {
  if (iteration_ < options_.start_iteration) {
    if (bucket.is_last) ++iteration_;
    return AllReduceHook{}.start(bucket, group);
  }
  return [this, last = bucket.is_last, finish = compress(bucket, group)] {
    at::Tensor result = finish();
    if (!options_.warm_start) {
      ps_.clear();
      qs_.clear();
    }
    if (last) ++iteration_;
    return result;
  };
}

FinishBucket PowerSgdHook::compress(const GradientBucket& bucket, const ProcessGroup& group) {
  const auto memory = bucket.buffer.options();
  const std::int64_t most = options_.matrix_approximation_rank;
  const double epsilon = options_.orthogonalization_epsilon;
  add_error(bucket.index, bucket.buffer);
  auto [matrices, others] = divide(bucket.gradients, options_, statistics_);
  Compressed work{.batches = batches_of(matrices, options_.batch_tensors_with_same_shape),
                  .uncompressed = others,
                  .flat = flat_copy(others, memory)};
  work.flat_sent = sum_of(group, work.flat);
  at::Tensor &ps = ps_[bucket.index], &qs = qs_[bucket.index];
  std::optional<at::Generator> generator;
  if (!options_.warm_start || !ps.defined()) {
    generator = at::detail::createCPUGenerator(next_seed());
    ps = at::empty({numel_of(work.batches, 1, most)}, memory);
    qs = at::empty({numel_of(work.batches, 2, most)}, memory);
  }
  assign_memory(work.batches, ps, qs, most);
  prepare_qs(work.batches, generator, epsilon);
  compute_ps(work.batches);
  work.ps_sent = sum_of(group, ps);
  return [=, this, index = bucket.index, buffer = bucket.buffer]() mutable {
    wait_for(work.flat_sent);
    unpack_means(work, group.size());
    wait_for(work.ps_sent);
    compute_qs(work.batches, epsilon);
    std::optional<Work> qs_sent = sum_of(group, qs);
    wait_for(qs_sent);
    qs.div_(group.size());
    for (const auto& batch : work.batches) decompress(batch);
    keep_error(index, buffer);
    return buffer;
  };
}

FinishBucket BatchedPowerSgdHook::compress(const GradientBucket& bucket, const ProcessGroup& group) {
  at::Tensor square = square_of(bucket.buffer);
  const std::int64_t side = square.size(0), columns = std::min(side, options_.matrix_approximation_rank);
  statistics_.before += bucket.buffer.numel();
  statistics_.after += 2 * side * columns;
  add_error(bucket.index, square);
  at::Tensor &p = ps_[bucket.index], &q = qs_[bucket.index];
  if (!options_.warm_start || !p.defined()) {
    p = at::empty({side, columns}, square.options());
    q = random_matrix(next_seed(), {side, columns}, square);
  }
  orthogonalize(q);
  at::matmul_out(p, square, q);
  return [=, this, index = bucket.index, buffer = bucket.buffer, sent = group.all_reduce_async(p)]() mutable {
    sent.wait();
    orthogonalize(p);
    at::matmul_out(q, square.t(), p);
    group.all_reduce(q);
    q.div_(group.size());
    at::matmul_out(square, p, q.t());
    keep_error(index, square);
    return buffer.copy_(square.view(-1).narrow(0, 0, buffer.numel()));
  };
}

}  // namespace lockstep
