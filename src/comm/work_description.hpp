#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

namespace lockstep {

/// What a Work does, for its errors. Small, because the text is only needed if the operation fails.
struct WorkDescription {
  const char* name;
  /// Counts the group's collectives, or its messages, from 1; equal on all ranks that make the same calls in
  /// the same order. 0: not started yet.
  std::int64_t number;
  std::shared_ptr<const std::string> who;
  at::Tensor tensor;

  std::string describe() const;
};

}  // namespace lockstep
