#include "lockstep/optim/step_outcome.hpp"

#include <utility>

#include "optim/late_number.hpp"

namespace lockstep::optim {

StepOutcome StepOutcome::of(const at::Tensor& found_inf) {
  auto late = std::make_shared<LateNumber>(found_inf);
  if (found_inf.is_cpu() && !late->is_recorded()) return late->get() == 0;
  StepOutcome outcome;
  outcome.late_ = std::move(late);
  return outcome;
}

bool StepOutcome::stepped() const { return late_ == nullptr ? stepped_ : late_->get() == 0; }

}  // namespace lockstep::optim
