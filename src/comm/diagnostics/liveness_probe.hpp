#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "comm/diagnostics/operation_tracker.hpp"

namespace lockstep::comm {

/// Looks, while this rank waits in a barrier, whether those who have not come still can: not who has ended or
/// left, nor who is in a collective that this rank has not called. One for each wait.
class LivenessProbe {
 public:
  using Milliseconds = std::chrono::milliseconds;

  /// `path` is the group's name in the recorder.
  LivenessProbe(c10d::ProcessGroup& group, const std::string& path, const Diagnostics& diagnostics)
      : group_(group), path_(path), diagnostics_(diagnostics) {}

  /// Why one of `missing`, ranks of the world, cannot come; "" as long as all can.
  std::string operator()(const std::vector<int>& missing, Milliseconds waited);

  /// So that those who wait for this rank elsewhere, in the collective that it has not called, end as well.
  void tell_the_others(const std::string& words) const noexcept;

 private:
  std::string ask(const std::vector<int>& missing) const;

  c10d::ProcessGroup& group_;
  const std::string& path_;
  const Diagnostics& diagnostics_;
  Milliseconds next_question_{0};
};

}  // namespace lockstep::comm
