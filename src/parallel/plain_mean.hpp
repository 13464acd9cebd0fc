#pragma once

#include "lockstep/parallel/comm_hook.hpp"

namespace lockstep::parallel {

/// What the reducer does without a hook, as a hook, with the same bits.
class PlainMean : public CommHook {
 public:
  explicit PlainMean(int divisor) : divisor_(divisor) {}

  std::string name() const override { return "none"; }
  FinishBucket start(const GradientBucket& bucket, const ProcessGroup& group) override;

  void set_divisor(int divisor) { divisor_ = divisor; }
  /// Whether the gradients lie in the bucket already: the reducer divides those in place, and multiplies
  /// others by the reciprocal as it copies them.
  void set_in_place(bool in_place) { in_place_ = in_place; }

 private:
  int divisor_;
  bool in_place_ = false;
};

}  // namespace lockstep::parallel
