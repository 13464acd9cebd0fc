#include "data/batch_plan.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

std::int64_t rounded_down(std::int64_t value, std::int64_t unit) { return value - value % unit; }

std::int64_t rounded_up(std::int64_t value, std::int64_t unit) {
  return rounded_down(value, unit) + (value % unit != 0 ? unit : 0);
}

/// The number of positions that are distributed over the ranks if `left` samples are left.
std::int64_t count_dealt(std::int64_t left, const BatchPlanOptions& options) {
  const auto global = global_batch_size(options);
  if (options.drop_last) return rounded_down(left, global);
  if (!options.how.even_batches || options.num_replicas == 1) return left;
  return rounded_up(left, options.how.sharding == Sharding::by_sample ? options.num_replicas : global);
}

/// Positions are distributed in runs: of one sample, or of one batch.
std::int64_t run_length(const BatchPlanOptions& options) {
  return options.how.sharding == Sharding::by_sample ? 1 : rank_batch_size(options);
}

/// The number of this rank's positions among the first `count`.
std::int64_t share(std::int64_t count, const BatchPlanOptions& options) {
  const auto run = run_length(options);
  const auto round = run * options.num_replicas;
  const auto begun = count % round - run * options.rank;
  return count / round * run + std::clamp<std::int64_t>(begun, 0, run);
}

/// The position of this rank's sample number `local`.
std::int64_t position_of(std::int64_t local, const BatchPlanOptions& options) {
  const auto run = run_length(options);
  return (local / run * options.num_replicas + options.rank) * run + local % run;
}

std::int64_t checked_consumed(std::int64_t consumed, std::int64_t length) {
  if (consumed >= 0 && consumed <= length) return consumed;
  throw UsageError(
      fmt::format("a position of {} samples is outside the epoch, which has {}. Continue with the same data "
                  "set and sampler.",
                  consumed, length));
}

const BatchPlanOptions& check_plan(const BatchPlanOptions& options) {
  check_plan_options(options);
  return options;
}

}  // namespace

std::int64_t count_batches(std::int64_t left, const BatchPlanOptions& options) {
  const auto size = rank_batch_size(options);
  return rounded_up(share(count_dealt(left, options), options), size) / size;
}

BatchPlan::BatchPlan(std::span<const std::int64_t> order, std::int64_t consumed,
                     const BatchPlanOptions& options)
    : length_(static_cast<std::int64_t>(order.size())),
      consumed_(checked_consumed(consumed, length_)),
      batch_size_(rank_batch_size(check_plan(options))),
      global_batch_size_(global_batch_size(options)) {
  const auto left = length_ - consumed_;
  const auto offsets = count_dealt(left, options);
  const auto mine = share(offsets, options);
  valid_ = share(std::min(left, offsets), options);
  indices_.reserve(static_cast<std::size_t>(mine));
  for (std::int64_t local = 0; local < mine; ++local) {
    // After its end the order restarts.
    const auto offset = (consumed_ + position_of(local, options)) % length_;
    indices_.push_back(order[static_cast<std::size_t>(offset)]);
  }
}

std::int64_t BatchPlan::count() const noexcept {
  return rounded_up(static_cast<std::int64_t>(indices_.size()), batch_size_) / batch_size_;
}

std::span<const std::int64_t> BatchPlan::indices(std::int64_t number) const {
  const auto first = static_cast<std::size_t>(number * batch_size_);
  return std::span(indices_).subspan(
      first, std::min(static_cast<std::size_t>(batch_size_), indices_.size() - first));
}

std::int64_t BatchPlan::valid_rows(std::int64_t number) const {
  const auto rows = static_cast<std::int64_t>(indices(number).size());
  return std::clamp<std::int64_t>(valid_ - number * batch_size_, 0, rows);
}

std::int64_t BatchPlan::consumed_after(std::int64_t number) const noexcept {
  return std::min(consumed_ + (number + 1) * global_batch_size_, length_);
}

}  // namespace lockstep
