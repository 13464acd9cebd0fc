#pragma once

#include <ATen/record_function.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <memory>
#include <string>

namespace lockstep::train {

/// While it exists, watches what this thread lets LibTorch do: a usual run of what is to be recorded as a CUDA
/// graph. A replay repeats kernels and none of the host's decisions. So a step must not wait for the device,
/// must not draw random numbers on the CPU, and must do the same each time. A recording would notice only the
/// first, and fail.
class Rehearsal {
 public:
  explicit Rehearsal(const at::Device& device);
  ~Rehearsal();
  Rehearsal(const Rehearsal&) = delete;
  Rehearsal& operator=(const Rehearsal&) = delete;

  /// Why it cannot be recorded; "" if nothing was seen.
  std::string obstacle() const;
  /// Of the operations, their numbers and the shapes of their tensors: equal if the same was done.
  std::uint64_t signature() const noexcept { return signature_; }

 private:
  class Listener;
  static std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& call);
  void look_at(const at::RecordFunction& call);
  void add(std::uint64_t value) noexcept;

  bool is_cuda_;
  std::unique_ptr<Listener> listener_;
  c10::WarningUtils::WarningHandlerGuard listening_;
  at::CallbackHandle handle_;
  bool set_warnings_ = false;
  std::uint64_t signature_ = 0;
  /// The operation that the host runs; the one that drew random numbers on the CPU.
  std::string running_, drew_;
};

}  // namespace lockstep::train
