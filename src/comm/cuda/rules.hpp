#pragma once

#include <chrono>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "net/signal_free_thread.hpp"

// What the host decides and says of GPUs, without CUDA and without LibTorch.
namespace lockstep::comm {

/// When this process loads Lockstep's CUDA library.
enum class CudaLoading {
  /// At the start of the program.
  at_start,
  /// When a CUDA device is asked for by name: nothing shows that there is one.
  on_demand,
  never,
};

/// By LOCKSTEP_CUDA: `on` and `off` are at_start and never. `auto`, the default, is at_start where the driver
/// is there (`has_driver`) and CUDA_VISIBLE_DEVICES does not hide all devices, else on_demand. Throws
/// UsageError for any other value. *Local*.
CudaLoading cuda_loading(const Environment& environment, bool has_driver);

/// Whether CUDA_VISIBLE_DEVICES leaves no device: CUDA stops at the first entry that names none, so an empty
/// value, "-1" and Slurm's "NoDevFiles" all do. *Local*.
bool hides_cuda_devices(const Environment& environment);

/// The pairs of `count` devices of which each reaches the other's memory, for people: "all", "none", or
/// "0-1, 2-3"; "" of fewer than two. *Local*.
std::string peer_access_text(int count, bool (*can_access_peer)(int index, int peer));

/// A rank of a group and the GPU that it uses.
struct RankDevice {
  int rank;
  /// What no other GPU has.
  std::string uuid;
};

/// What is wrong where several ranks use one GPU, which NCCL refuses with an error that does not say so; ""
/// where each has its own. *Local*.
std::string shared_device_text(const std::vector<RankDevice>& devices);

/// What `make` returns or throws; for calls that may block for ever and take no limit. It runs in a thread of
/// its own, which is left to itself when `limit` passes: TimeoutError with the text `late`, and `make` must
/// refer to nothing that goes before the process does. *Local*.
template <class Make>
auto made_within(std::chrono::milliseconds limit, const std::string& late, Make make) -> decltype(make()) {
  std::packaged_task<decltype(make())()> task(std::move(make));
  auto result = task.get_future();
  net::signal_free_thread([task = std::move(task)]() mutable { task(); }).detach();
  if (result.wait_for(limit) == std::future_status::timeout) throw TimeoutError(late);
  return result.get();
}

}  // namespace lockstep::comm
