#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::testing {

struct LossPlan {
  /// Has a file for each loss that was carried out, with its way.
  std::string folder;
  std::uint64_t seed = 1;
  /// How many, spread over `until` steps from `from` on.
  std::int64_t losses = 0;
  std::int64_t from = 2;
  std::int64_t until = 150;
  std::string ways = "kbxe2";
  /// The only rank that is lost; -1: a random one.
  std::int64_t lost_rank = -1;
};

/// The losses of ranks, planned from the seed, each carried out once by whichever process of its rank gets
/// there:
///
///     k  SIGKILL at a random moment within 8 ms        x  an exception
///     b  SIGKILL in the middle of a backward           e  exit(0)
///     2  as k, and the successor is killed too, before its training
///     p  SIGSTOP at a random moment within 8 ms: it hangs, and is killed in the end
///     s  an exception in the same step of every process
///     a  SIGKILL of all ranks in the same step
///     v  SIGKILL in the step's evaluation, or the next one
///     c  SIGKILL in a callback, after the step's checkpoint or the next one; d: the successor there, too
///     t  SIGKILL in a callback, after the last step
class LostRanks {
 public:
  LostRanks(const LossPlan& plan, int rank, int ranks);

  bool any_is_lost() const;
  void in_set_up() const;
  /// Before the backward of a step.
  void in_step(std::int64_t step, const at::Tensor& loss_value) const;
  /// Before a batch of the evaluation after `step` steps.
  void in_evaluation(std::int64_t step) const;
  /// After the checkpoint of `step` steps.
  void after_checkpoint(std::int64_t step) const;
  void after_last_step() const;

 private:
  struct Loss {
    std::int64_t step = 0;
    int rank = 0;
    char way = 'k';
    std::chrono::microseconds delay{0};
  };

  std::string mark(std::size_t number) const { return folder_ + "/lost." + std::to_string(number); }
  static bool claim(const std::string& path, char way);

  std::string folder_;
  int rank_;
  std::vector<Loss> losses_;
};

}  // namespace lockstep::testing
