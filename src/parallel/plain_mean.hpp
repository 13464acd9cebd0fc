#pragma once

#include <string>

#include "lockstep/parallel/comm_hook.hpp"

namespace lockstep::parallel {

/// The reducer's own averaging as a hook, bit-identical.
class PlainMean : public CommHook {
 public:
  explicit PlainMean(int divisor) : divisor_(divisor) {}

  std::string name() const override { return "none"; }
  FinishBucket start(const GradientBucket& bucket, const ProcessGroup& group) override;

  void set_divisor(int divisor) { divisor_ = divisor; }
  /// Whether the gradients are already in the bucket: the reducer divides those in place, and multiplies
  /// others by the reciprocal while copying them.
  void set_in_place(bool in_place) { in_place_ = in_place; }

 private:
  int divisor_;
  bool in_place_ = false;
};

}  // namespace lockstep::parallel
