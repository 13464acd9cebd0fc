#include "comm/cuda/shared_device.hpp"

#include <fmt/format.h>

#include <map>

namespace lockstep::comm {

std::string shared_device_text(const std::vector<RankDevice>& devices) {
  std::map<std::string, std::vector<int>> users;
  for (const auto& device : devices) users[device.uuid].push_back(device.rank);
  for (const auto& [uuid, ranks] : users) {
    if (ranks.size() == 1) continue;
    return fmt::format(
        "ranks {} use the same GPU ({}), and NCCL needs one for each rank. Start no more ranks on a host "
        "than it has "
        "GPUs and leave the device to 'auto' or 'cuda', which is number LOCAL_RANK; or let them share it "
        "with the gloo "
        "backend",
        fmt::join(ranks, ", "), uuid);
  }
  return "";
}

}  // namespace lockstep::comm
