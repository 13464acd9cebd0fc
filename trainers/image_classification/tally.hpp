#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "lockstep/train/accelerator.hpp"

/// Sums over samples, for exact means over any number of ranks. They stay on the device until they are read.
/// A checkpoint has each rank's sums of the current epoch. In a job that replaces lost ranks each rank has
/// the sums of all, so that nothing is lost with a rank.
class Tally final : public lockstep::Checkpointable {
 public:
  explicit Tally(const lockstep::Accelerator& accelerator);

  /// A training begins: what it loads later is the state of a rank with which a lost one was replaced.
  void begin_training() noexcept { trains_ = true; }
  /// A step begins, perhaps again.
  void begin_step();
  /// Adds a part of the step.
  void add(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& mean_loss);
  /// All parts were added, and the optimizer has not stepped. *Collective*: in a job that replaces lost ranks
  /// it adds up the parts of all.
  void share_step();
  /// The optimizer has stepped.
  void keep_step();
  /// Adds the last step to the sums, once for each step.
  void end_step(std::int64_t step);
  void clear();

  /// The sums over all ranks. *Collective*.
  Tally of_all_ranks() const;

  double loss() const;
  double accuracy() const;

  /// Whether each rank has the sums of all.
  bool is_shared() const noexcept { return is_shared_; }

  lockstep::SafeTensors state_dict() const override;
  void load_state_dict(const lockstep::SafeTensors& state) override;

  /// For a process that replaces a lost one: what this one has at the end of its step, as text.
  std::string text() const;
  /// Throws DataError for another text.
  void load_text(const std::string& text);

 private:
  lockstep::Accelerator accelerator_;
  bool is_shared_;
  bool trains_ = false;
  at::Tensor sums_;
  /// The step under way, of this rank; the same over the ranks, if it is shared; and the last step.
  at::Tensor own_, shared_, last_;
  /// The last step in sums_.
  std::int64_t step_ = -1;
};
