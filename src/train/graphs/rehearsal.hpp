#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace lockstep::train {

/// While it exists, watches what this thread lets LibTorch do: a usual run of what is to be recorded as a
/// CUDA graph. A replay repeats kernels and none of the host's decisions. So a step must not wait for the
/// device, must not draw random numbers on the CPU, and must do the same each time. A recording would notice
/// only the first, and fail.
class Rehearsal {
 public:
  /// `inputs`: those of the run, whose memory is another one each time.
  Rehearsal(const at::Device& device, const std::vector<at::Tensor>& inputs);
  ~Rehearsal();
  Rehearsal(const Rehearsal&) = delete;
  Rehearsal& operator=(const Rehearsal&) = delete;

  /// Why it cannot be recorded; "" if nothing was seen.
  std::string obstacle() const;
  /// Of the operations, their numbers, the shapes of their tensors, and the memory of those that no operation
  /// of this run has made: equal if the same was done with the same. A step that puts a new tensor in the
  /// place of one that it keeps (`total = total + loss`) reads other memory each time; a replay would not.
  std::uint64_t signature() const noexcept { return signature_; }

 private:
  class Listener;
  static std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& call);
  static void note_end(const at::RecordFunction& call, at::ObserverContext* context);
  void look_at(const at::RecordFunction& call);
  void look_at_tensor(const at::Tensor& tensor);
  void own(const c10::IValue& value);
  void add(std::uint64_t value) noexcept;

  bool is_cuda_;
  std::unique_ptr<Listener> listener_;
  c10::WarningUtils::WarningHandlerGuard listening_;
  at::CallbackHandle handle_;
  bool set_warnings_ = false;
  std::uint64_t signature_ = 0;
  /// Operations that have begun and not ended.
  int depth_ = 0;
  /// Memory that this run has made or was given.
  std::set<const void*> own_;
  /// Memory that was there before.
  std::set<const void*> foreign_;
  /// The operation that the host runs; the one that drew random numbers on the CPU.
  std::string running_, drew_;
};

}  // namespace lockstep::train
