#include "lockstep/train/mixed_precision.hpp"

#include <ATen/autocast_mode.h>

#include "kernels/weight_copies.hpp"

namespace lockstep {
namespace {

at::ScalarType dtype_of(MixedPrecision precision) {
  return precision == MixedPrecision::fp16 ? at::kHalf : at::kBFloat16;
}

}  // namespace

Autocast::Autocast(const at::Device& device, MixedPrecision precision)
    : device_(device.type()),
      was_on_(at::autocast::is_autocast_enabled(device_)),
      dtype_before_(at::autocast::get_autocast_dtype(device_)) {
  at::autocast::set_autocast_enabled(device_, precision != MixedPrecision::no);
  if (precision != MixedPrecision::no) at::autocast::set_autocast_dtype(device_, dtype_of(precision));
  at::autocast::increment_nesting();
  kernels::ForwardOfWeights::begin();
}

Autocast::~Autocast() {
  kernels::ForwardOfWeights::end();
  // The outermost guard drops the cached copies of parameters, because the next step changes these.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_on_);
  at::autocast::set_autocast_dtype(device_, dtype_before_);
}

}  // namespace lockstep
