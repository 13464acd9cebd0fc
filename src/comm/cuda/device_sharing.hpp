#pragma once

#include <string>
#include <vector>

// Which ranks use which GPU, and which GPUs reach each other, as text. Needs neither CUDA nor LibTorch.
namespace lockstep::comm {

/// A rank of a group and the GPU that it uses.
struct RankDevice {
  int rank;
  /// Unique to the GPU.
  std::string uuid;
};

/// An error message if several ranks use one GPU, which NCCL rejects with an unclear error; "" otherwise.
/// *Local*.
std::string shared_device_text(const std::vector<RankDevice>& devices);

/// The pairs of `count` devices that can access each other's memory, as text: "all", "none", or "0-1, 2-3";
/// "" for fewer than two. *Local*.
std::string peer_access_text(int count, bool (*can_access_peer)(int index, int peer));

}  // namespace lockstep::comm
