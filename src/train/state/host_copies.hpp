#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>

namespace lockstep::train {

/// Copies of tensors in host memory that keep their values while the tensors change. Copies of device tensors
/// are in page-locked memory and are made in order on the device's current stream; wait() waits for all of
/// them. *Local*; one thread.
class HostCopies {
 public:
  /// A contiguous copy without a graph. The copy of a device tensor has no values before wait().
  at::Tensor copy(const at::Tensor& tensor);
  void wait();

 private:
  at::Tensor page_locked_like(const at::Tensor& tensor);

  std::map<c10::DeviceIndex, at::Device> devices_;
  /// Memory that several copies share, and how much of it they use.
  at::Tensor block_;
  std::int64_t used_ = 0;
};

}  // namespace lockstep::train
