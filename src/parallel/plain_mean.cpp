#include "plain_mean.hpp"

#include <ATen/ScalarOps.h>

namespace lockstep::parallel {

FinishBucket PlainMean::start(const GradientBucket& bucket, const ProcessGroup& group) {
  if (in_place_) {
    bucket.buffer.div_(divisor_);
  } else {
    // As a tensor, as the reducer has it: as a number it would be rounded to the gradients' width first.
    bucket.buffer.mul_(at::native::wrapped_scalar_tensor(1.0 / divisor_));
  }
  return [buffer = bucket.buffer, work = group.all_reduce_async(bucket.buffer)]() mutable {
    work.wait();
    return buffer;
  };
}

}  // namespace lockstep::parallel
