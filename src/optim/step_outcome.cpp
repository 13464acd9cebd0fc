#include "lockstep/optim/step_outcome.hpp"

#include "optim/late_number.hpp"

namespace lockstep::optim {

StepOutcome StepOutcome::of(const at::Tensor& found_inf) {
  if (found_inf.is_cpu()) return found_inf.item<float>() == 0;
  StepOutcome outcome;
  outcome.late_ = std::make_shared<LateNumber>(found_inf);
  return outcome;
}

bool StepOutcome::stepped() const { return late_ == nullptr ? stepped_ : late_->get() == 0; }

}  // namespace lockstep::optim
