#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/parallel/module_tensors.hpp"

namespace lockstep::parallel {

/// One thread per replica. The threads live as long as this object, so that PyTorch's per-thread state (a
/// pool for loops, handles of CUDA libraries) is created once. Replicas on CPUs share PyTorch's number of
/// loop threads.
class ReplicaThreads {
 public:
  /// *Local*.
  explicit ReplicaThreads(std::vector<at::Device> devices);
  ~ReplicaThreads();
  ReplicaThreads(const ReplicaThreads&) = delete;
  ReplicaThreads& operator=(const ReplicaThreads&) = delete;

  /// Runs task i on thread i, with that thread's device as the current one, and waits for all. The tasks
  /// inherit the caller's gradient mode, inference mode, autocast and, on a GPU, the device's current stream.
  /// *Local*; one caller at a time. If tasks throw, the exception of the first such replica is thrown after
  /// all have ended: an Error that names the replica and its device, with the task's own exception nested in
  /// it. Throws UsageError if there are more tasks than threads.
  void run(const std::vector<std::function<void()>>& tasks);

  const std::vector<at::Device>& devices() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Calls forward of replica i with the i-th inputs, a tuple of forward's arguments, on all replicas in
/// parallel. Returns the outputs in that order. *Local*. Throws as ReplicaThreads::run.
template <class Module, class Inputs>
auto parallel_apply(std::vector<Module>& replicas, std::vector<Inputs> inputs, ReplicaThreads& threads) {
  const auto forward = [&](std::size_t i) {
    return std::apply([&](auto&... values) { return call(replicas.at(i), values...); }, inputs[i]);
  };
  using Output = decltype(forward(0));
  std::vector<std::optional<Output>> results(inputs.size());
  std::vector<std::function<void()>> tasks;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    tasks.emplace_back([&, i] { results[i].emplace(forward(i)); });
  threads.run(tasks);
  std::vector<Output> outputs;
  for (auto& result : results) outputs.push_back(std::move(*result));
  return outputs;
}

}  // namespace lockstep::parallel
