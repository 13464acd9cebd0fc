#pragma once

#include <utility>

#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "lockstep/train/mixed_precision.hpp"

namespace lockstep {

/// A model as Accelerator::prepare gives it back: a DistributedDataParallel whose forward runs under the
/// Accelerator's mixed precision and returns float32 where it computed in half-wide numbers. Copies are
/// handles on the same model.
template <class Module>
class AcceleratedModel : public DistributedDataParallel<Module> {
 public:
  AcceleratedModel(DistributedDataParallel<Module> ddp, MixedPrecision precision)
      : DistributedDataParallel<Module>(std::move(ddp)), precision_(precision) {}

  /// As DistributedDataParallel's. *Collective*.
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
