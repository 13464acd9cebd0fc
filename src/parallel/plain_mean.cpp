#include "parallel/plain_mean.hpp"

#include <ATen/ScalarOps.h>

namespace lockstep::parallel {

FinishBucket PlainMean::start(const GradientBucket& bucket, const ProcessGroup& group) {
  if (in_place_) {
    bucket.buffer.div_(divisor_);
  } else {
    // A tensor, as in the reducer: a number would first be rounded to the gradients' precision.
    bucket.buffer.mul_(at::native::wrapped_scalar_tensor(1.0 / divisor_));
  }
  return [buffer = bucket.buffer, work = group.all_reduce_async(bucket.buffer)]() mutable {
    work.wait();
    return buffer;
  };
}

}  // namespace lockstep::parallel
