#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.hpp"

namespace bench {

/// What a size is made of, on this rank.
struct Shape {
  at::ScalarType dtype;
  lockstep::ReduceOp op;
  /// Elements of the larger side: what `size` in the table means.
  std::int64_t count;
};

/// One collective at one size. `run` may be called any number of times, and changes `output` in place where
/// the collective does.
struct Case {
  std::function<void()> prepare;
  std::function<void()> run;
  /// What has to be right after prepare() and run(), and what it must be; nothing where a rank gets nothing.
  at::Tensor output;
  at::Tensor expected;
};

/// False for one that moves no elements: it is timed once, and has no bandwidth and nothing to be wrong.
bool has_size(const std::string& collective);
bool reduces(const std::string& collective);

/// How much of a size each link carries, as nccl-tests counts it: busbw is algbw times this.
double bus_factor(const std::string& collective, int ranks);

Case make_case(const std::string& collective, const lockstep::ProcessGroup& group, const Shape& shape);

/// Whole parts for every rank: the number of elements nearest to the wished one; 0 where it has no size.
std::int64_t count_for(const std::string& collective, std::int64_t wished, int ranks);

at::ScalarType dtype_from(const std::string& name);
lockstep::ReduceOp op_from(const std::string& name);

}  // namespace bench
