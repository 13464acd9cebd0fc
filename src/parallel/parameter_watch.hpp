#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "lockstep/parallel/module_tensors.hpp"
#include "parallel/reducer_setup.hpp"

namespace lockstep::parallel {

/// The named parameters of a module; called when one must be named.
using NamesOfParameters = std::function<std::vector<NamedTensor>()>;

/// Compares a module's parameters with those that its reducer was made for.
///
/// A reducer averages the gradients of the tensors that it was given, through hooks on their gradient
/// accumulators. Both go stale without a word from autograd: torch::load() and conversions replace a
/// parameter's accumulator, replace_module() its tensor, and requires_grad_() changes which parameters get a
/// gradient. Looking at each parameter before each forward costs some nanoseconds per parameter.
class ParameterWatch {
 public:
  /// `all`: the module's parameters; `trained`: those of the reducer, each once.
  ParameterWatch(const std::vector<NamedTensor>& all, const std::vector<NamedTensor>& trained);

  /// Before a forward: moves the reducer's hooks to new accumulators, and restores the strides of parameters
  /// that got other data (buckets have those of the beginning, on all ranks). Throws UsageError for a
  /// parameter that requires a gradient which nothing would average, and for one of another dtype, shape or
  /// device than at the beginning. *Local*.
  void check(const std::vector<at::Tensor>& current, const NamesOfParameters& names, TimedReducer& reducer);

  /// "'a', 'b'": the reducer's parameters that were frozen since; "" if none or all are frozen.
  const std::string& frozen() const noexcept { return frozen_; }

 private:
  struct Form {
    std::vector<std::int64_t> sizes;
    /// Those of the parameter's place in a bucket; none if that is contiguous whatever the parameter's.
    std::vector<std::int64_t> strides;
    at::TensorOptions options;
  };
  void check_forms(TimedReducer& reducer);
  [[noreturn]] void refuse(const std::vector<NamedTensor>& now) const;
  bool is_covered(const at::Tensor& parameter) const;

  std::vector<NamedTensor> trained_;
  std::vector<Form> forms_;
  /// Whether the reducer has it, by implementation; frozen ones are kept alive so that no other tensor gets
  /// their address.
  std::unordered_map<const void*, bool> known_;
  std::vector<at::Tensor> untrained_;
  std::string frozen_;
};

}  // namespace lockstep::parallel
