#pragma once

#include <ATen/core/Tensor.h>

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
  std::map<c10::DeviceIndex, at::Device> devices_;
};

}  // namespace lockstep::train
