#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "parallel/autocast_state.hpp"
#include "parallel/generator_states.hpp"
#include "parallel/memory_version.hpp"

namespace lockstep::parallel {

/// One checkpointed call: what its forward saved for backward, by number, and how to recompute it. Backward
/// may ask from any thread.
class CheckpointFrame : public std::enable_shared_from_this<CheckpointFrame> {
 public:
  /// Remembers the states of the random generators and of autocast. `name` is used in errors.
  CheckpointFrame(std::string name, std::function<void()> recompute, const std::vector<at::Tensor>& inputs);

  /// In the first forward: records a tensor, drops it unless it is a parameter, and returns its number.
  std::size_t drop(const at::Tensor& tensor);

  /// In the recomputation: keeps the next tensor. Throws Error if it is not the one that the first forward
  /// saved.
  void keep(const at::Tensor& tensor);

  /// In backward: returns the tensor, after recomputing it if necessary. Throws UsageError inside the first
  /// forward, and Error if what the tensor depends on has been changed in place, or if the recomputation
  /// saves other tensors.
  at::Tensor take(std::size_t number);

  void end_first_forward() noexcept { first_forward_runs_ = false; }

 private:
  struct Saved {
    std::vector<std::int64_t> sizes;
    at::ScalarType dtype;
    /// The parameter that it is or is a view of, if any, and its version at that time.
    at::Tensor parameter = {};
    std::int64_t version = 0;
    /// It is the parameter itself, which stays in memory and is the same in the recomputation.
    bool by_reference = false;
    MemoryVersion memory;
  };
  struct Input {
    explicit Input(const at::Tensor& given) : tensor(given), memory(given) {}
    at::Tensor tensor;
    MemoryVersion memory;
  };

  void check_unchanged(const Saved& saved) const;
  void compute_again();
  [[noreturn]] void changed(const at::Tensor& tensor) const;
  [[noreturn]] void differs(const std::string& how) const;

  std::string name_;
  std::function<void()> recompute_;
  std::vector<Input> inputs_;
  GeneratorStates generators_;
  AutocastState autocast_;
  std::vector<Saved> saved_;
  bool first_forward_runs_ = true;

  std::mutex mutex_;
  /// The versions of what the first forward saved, before the recomputation: the function may itself write to
  /// memory that it was given, before it uses it.
  std::vector<std::int64_t> versions_before_;
  /// What the recomputation of this backward saved, by number; empty before.
  std::vector<at::Tensor> values_;
  int backward_ = -1;
};

/// The checkpointed function that is running on this thread, if any: `frame` gets the tensors that autograd
/// saves, in the first forward or in the recomputation.
struct RunningCheckpoint {
  std::shared_ptr<CheckpointFrame> frame;
  bool again = false;

  /// Of this thread.
  static RunningCheckpoint& current() noexcept;
};

}  // namespace lockstep::parallel
