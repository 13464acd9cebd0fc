#pragma once

#include <chrono>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "core/runtime/signal_free_thread.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"

// The GPU rules of the host that need neither CUDA nor LibTorch.
namespace lockstep::comm {

/// When this process loads Lockstep's CUDA library.
enum class CudaLoading {
  /// At the start of the program.
  at_start,
  /// When a CUDA device is requested explicitly.
  on_demand,
  never,
};

/// Evaluates LOCKSTEP_CUDA: `on` is at_start, `off` is never. `auto`, the default, is at_start if the driver
/// is installed (`has_driver`) and CUDA_VISIBLE_DEVICES does not hide all devices, otherwise on_demand.
/// Throws UsageError for any other value. *Local*.
CudaLoading cuda_loading(const Environment& environment, bool has_driver);

/// Whether CUDA_VISIBLE_DEVICES hides all devices. CUDA stops at the first entry that is not a device, so an
/// empty value, "-1" and Slurm's "NoDevFiles" do. *Local*.
bool hides_cuda_devices(const Environment& environment);

/// The pairs of `count` devices that can access each other's memory, as text: "all", "none", or "0-1, 2-3";
/// "" for fewer than two. *Local*.
std::string peer_access_text(int count, bool (*can_access_peer)(int index, int peer));

/// A rank of a group and the GPU that it uses.
struct RankDevice {
  int rank;
  /// Unique to the GPU.
  std::string uuid;
};

/// An error message if several ranks use one GPU, which NCCL rejects with an unclear error; "" otherwise.
/// *Local*.
std::string shared_device_text(const std::vector<RankDevice>& devices);

/// Returns or throws what `make` does; for calls that may block forever and have no timeout. `make` runs in
/// its own thread. If `limit` passes, that thread is detached and TimeoutError is thrown with the text
/// `late`. `make` must therefore only refer to objects that live until the process ends. *Local*.
template <class Make>
auto made_within(std::chrono::milliseconds limit, const std::string& late, Make make) -> decltype(make()) {
  std::packaged_task<decltype(make())()> task(std::move(make));
  auto result = task.get_future();
  signal_free_thread([task = std::move(task)]() mutable { task(); }).detach();
  if (result.wait_for(limit) == std::future_status::timeout) throw TimeoutError(late);
  return result.get();
}

}  // namespace lockstep::comm
