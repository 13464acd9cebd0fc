#include "comm/cuda/rules.hpp"

#include <fmt/format.h>

#include <map>

#include "core/visible_devices.hpp"

namespace lockstep::comm {

CudaLoading cuda_loading(const Environment& environment, bool has_driver) {
  const std::string value = find_variable(environment, "LOCKSTEP_CUDA").value_or("auto");
  if (value == "on") return CudaLoading::at_start;
  if (value == "off") return CudaLoading::never;
  if (value != "auto")
    throw UsageError(fmt::format("LOCKSTEP_CUDA is '{}': expected auto, on or off", value));
  return has_driver && !hides_cuda_devices(environment) ? CudaLoading::at_start : CudaLoading::on_demand;
}

bool hides_cuda_devices(const Environment& environment) {
  const auto devices = visible_devices(environment);
  return devices && devices->empty();
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

}  // namespace lockstep::comm
