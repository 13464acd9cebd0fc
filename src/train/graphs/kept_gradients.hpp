#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lockstep::train {

/// The gradients of a training whose windows have several micro-batches, where graphs find them: they stay at
/// one place, and are filled with zeros at the end of a window instead of being dropped. A parameter that got
/// no gradient in a window has none for the optimizer nevertheless: with zeros it would decay.
class KeptGradients {
 public:
  explicit KeptGradients(std::vector<at::Tensor> parameters);

  /// Before a micro-batch: gradients that the program has dropped or replaced are at their places again.
  void bring_home();
  /// Before its backward: find_changed() compares with this moment.
  void mark();
  /// After the backward of a micro-batch, before anything else changes gradients: which ones it has changed,
  /// by the numbers of their parameters. To be given to changed(), also after each replay of the micro-batch.
  std::vector<bool> find_changed() const;
  void changed(const std::vector<bool>& which);
  /// Before the optimizer's step: parameters without a gradient in this window have none.
  void hide_unchanged();
  /// After it: places of new gradients are kept, and all are filled with zeros.
  void clear();
  /// Drops all gradients instead.
  void drop();

 private:
  std::vector<at::Tensor> parameters_;
  /// Undefined for a parameter that never had one.
  std::vector<at::Tensor> homes_;
  /// The gradients before the micro-batch, and their versions.
  std::vector<const void*> before_;
  std::vector<std::int64_t> versions_;
  std::vector<bool> changed_;
};

}  // namespace lockstep::train
