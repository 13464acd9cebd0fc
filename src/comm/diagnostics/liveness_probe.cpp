#include "comm/diagnostics/liveness_probe.hpp"

#include <algorithm>

#include "shm/group.hpp"

namespace lockstep::comm {

using coordination::kWaitTimes;

std::string LivenessProbe::operator()(const std::vector<int>& missing, Milliseconds waited) {
  if (memory_ != nullptr) {
    if (std::string gone = memory_->step_sync().loss_among(missing); !gone.empty()) return gone;
  }
  if (monitor_ == nullptr || waited < next_question_) return "";
  next_question_ = waited + std::min(waited, kWaitTimes.longest_probe_pause);
  const int group = recorder_.find_group(group_);  // -1: the group has no CPU tensors.
  const std::uint64_t own = group < 0 ? 0 : recorder_.progress(group).collectives;
  return obstacle_text(monitor_->ask(kWaitTimes.probe_answer), missing, group_, own);
}

void LivenessProbe::announce_failure(const std::string& reason) const noexcept {
  if (monitor_ != nullptr) monitor_->announce_departure("stopped: " + reason);
  if (memory_ != nullptr) memory_->step_sync().announce_failure(reason.c_str());
}

}  // namespace lockstep::comm
