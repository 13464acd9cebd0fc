#include "comm/cuda/device_sharing.hpp"

#include <fmt/format.h>

#include <map>

namespace lockstep::comm {

std::string shared_device_text(const std::vector<RankDevice>& devices) {
  std::map<std::string, std::vector<int>> users;
  for (const auto& device : devices) users[device.uuid].push_back(device.rank);
  for (const auto& [uuid, ranks] : users) {
    if (ranks.size() == 1) continue;
    return fmt::format(
        "ranks {} use the same GPU ({}), and NCCL needs one for each rank. "
        "Start at most as many ranks on a host as it has GPUs, and set the device to 'auto' or 'cuda': "
        "each rank then uses number LOCAL_RANK of the GPUs that it sees. "
        "If Slurm shows the ranks different GPUs (--gpu-bind), give each its own with --gpus-per-task=1. "
        "To let ranks share a GPU, use the gloo backend",
        fmt::join(ranks, ", "), uuid);
  }
  return "";
}

std::string peer_access_text(int count, bool (*can_access_peer)(int index, int peer)) {
  if (count < 2) return "";
  std::vector<std::string> pairs;
  for (int one = 0; one < count; ++one) {
    for (int other = one + 1; other < count; ++other) {
      if (can_access_peer(one, other) && can_access_peer(other, one))
        pairs.push_back(fmt::format("{}-{}", one, other));
    }
  }
  if (pairs.size() == static_cast<std::size_t>(count * (count - 1) / 2)) return "all";
  return pairs.empty() ? "none" : fmt::format("{}", fmt::join(pairs, ", "));
}

}  // namespace lockstep::comm
