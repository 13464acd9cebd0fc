#pragma once

#include <ATen/core/Tensor.h>

#include <map>

namespace lockstep::train {

/// Copies of tensors in the host's memory, which keep their values while the tensors go on changing. Those of
/// a device go into page-locked memory, one behind the other on its current stream; wait() is the end of all.
/// *Local*; one thread.
class HostCopies {
 public:
  /// A copy, contiguous and without a graph. That of a device's tensor has no values before wait().
  at::Tensor copy(const at::Tensor& tensor);
  void wait();

 private:
  std::map<c10::DeviceIndex, at::Device> devices_;
};

}  // namespace lockstep::train
