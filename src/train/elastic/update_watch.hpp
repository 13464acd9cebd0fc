#pragma once

#include <cstdint>

#include "lockstep/train/accelerator.hpp"

namespace lockstep::train {

/// Whether a training's optimizers have stepped since a mark, so that its state is no longer that of the last
/// commit. Those that the Accelerator has prepared say so. Those of a plain loop step unseen: there it is
/// whether a weight was changed: by its version, which costs nothing, or by its value for optimizers that
/// leave no trace there. *Local*; one thread.
class UpdateWatch {
 public:
  explicit UpdateWatch(const Accelerator& accelerator) : accelerator_(accelerator) {}

  void mark() { marked_ = now(); }
  bool has_stepped() const { return now() != marked_; }

 private:
  std::uint64_t now() const;

  Accelerator accelerator_;
  std::uint64_t marked_ = 0;
};

}  // namespace lockstep::train
