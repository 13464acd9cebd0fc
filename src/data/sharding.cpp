#include "lockstep/data/sharding.hpp"

#include <fmt/core.h>

#include "lockstep/core/error.hpp"

namespace lockstep {

std::string to_string(Sharding sharding) {
  return sharding == Sharding::by_sample ? "by_sample" : "by_batch";
}

void check_plan_options(const BatchPlanOptions& options) {
  const auto refuse = [](const std::string& text) { throw UsageError("sharding an epoch: " + text); };
  if (options.num_replicas < 1) {
    refuse(fmt::format("num_replicas must be 1 or more, but is {}.", options.num_replicas));
  }
  if (options.rank < 0 || options.rank >= options.num_replicas) {
    refuse(fmt::format("rank must be from 0 to {}, but is {}.", options.num_replicas - 1, options.rank));
  }
  constexpr std::int64_t kLargest = std::int64_t{1} << 31;
  if (options.batch_size < 1 || options.batch_size > kLargest) {
    refuse(fmt::format("batch_size must be from 1 to 2^31, but is {}.", options.batch_size));
  }
  if (options.how.split_batches && options.batch_size % options.num_replicas != 0) {
    refuse(
        fmt::format("with split_batches the batch size is that of all ranks, and {} cannot be divided by {} "
                    "ranks. Choose a multiple of the number of ranks.",
                    options.batch_size, options.num_replicas));
  }
}

std::int64_t rank_batch_size(const BatchPlanOptions& options) {
  return options.how.split_batches ? options.batch_size / options.num_replicas : options.batch_size;
}

std::int64_t global_batch_size(const BatchPlanOptions& options) {
  return rank_batch_size(options) * options.num_replicas;
}

}  // namespace lockstep
