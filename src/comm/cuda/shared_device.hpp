#pragma once

#include <string>
#include <vector>

namespace lockstep::comm {

/// A rank of a group and the GPU that it uses.
struct RankDevice {
  int rank;
  /// What no other GPU has.
  std::string uuid;
};

/// What is wrong where several ranks use one GPU, which NCCL refuses with an error that does not say so; ""
/// where each has its own. *Local*.
std::string shared_device_text(const std::vector<RankDevice>& devices);

}  // namespace lockstep::comm
