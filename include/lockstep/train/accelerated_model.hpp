#pragma once

#include <utility>

#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "lockstep/train/mixed_precision.hpp"

namespace lockstep {

/// A model as Accelerator::prepare gives it back: a DistributedDataParallel whose forward runs under the
/// Accelerator's mixed precision and returns float32 where it computed in half-wide numbers. Copies are
/// handles on the same model.
///
/// Wherever a DistributedDataParallel is taken, it fits; taken there by value it loses the mixed precision.
/// The graph keeps the widths that forward chose, so backward needs no autocast of its own. One thread at a
/// time.
template <class Module>
class AcceleratedModel : public DistributedDataParallel<Module> {
 public:
  /// For Accelerator::prepare. *Local*.
  AcceleratedModel(DistributedDataParallel<Module> ddp, MixedPrecision precision)
      : DistributedDataParallel<Module>(std::move(ddp)), precision_(precision) {}

  /// As DistributedDataParallel's, with its errors. Of what forward returns (see parallel::visit_tensors),
  /// float16 and bfloat16 tensors become float32, so that losses are computed in full width. *Collective*.
  template <class... Inputs>
  auto operator()(Inputs&&... inputs) {
    if (precision_ == MixedPrecision::no)
      return DistributedDataParallel<Module>::operator()(std::forward<Inputs>(inputs)...);
    const Autocast cast(this->process_group().device(), precision_);
    auto output = DistributedDataParallel<Module>::operator()(std::forward<Inputs>(inputs)...);
    parallel::visit_tensors(output, [](at::Tensor& tensor) {
      if (c10::isReducedFloatingType(tensor.scalar_type())) tensor = tensor.to(at::kFloat);
    });
    return output;
  }
  template <class... Inputs>
  auto forward(Inputs&&... inputs) {
    return (*this)(std::forward<Inputs>(inputs)...);
  }

 private:
  MixedPrecision precision_;
};

}  // namespace lockstep
