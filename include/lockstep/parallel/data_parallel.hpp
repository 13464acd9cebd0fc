#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/parallel/parallel_apply.hpp"
#include "lockstep/parallel/replicas.hpp"
#include "lockstep/parallel/scatter_gather.hpp"

namespace lockstep {

/// Names, defaults and meaning as in torch.nn.DataParallel.
struct DataParallelOptions {
  /// One replica per device; the module itself must be on the first. Empty: all CUDA devices of this process,
  /// or the CPU if there are none. A device may occur several times: replicas on CPUs are for tests, and for
  /// models whose single operations are too small for all cores.
  std::vector<at::Device> devices = {};

  /// Device of the gathered outputs; the first device by default.
  std::optional<at::Device> output_device = {};

  /// The sample dimension of inputs and outputs.
  std::int64_t dim = 0;
};

/// The options with all defaults resolved. Throws UsageError if devices are of different types.
DataParallelOptions resolved(DataParallelOptions options);

/// Data parallelism in one process: a batch is split into chunks, one per device, replicas of the module
/// process them in threads, and the outputs are concatenated. The source module's parameters get the sum of
/// the replicas' gradients, as a single device would compute them for the whole batch. The semantics are
/// torch.nn.DataParallel's: uneven batches are split by at::chunk's rule, small ones into fewer chunks than
/// devices; a loss computed inside forward has one element per replica (take its mean); buffers are those of
/// the replica on the first device. Unlike there, replicas are kept, and only what has changed is copied.
///
///     lockstep::DataParallel model(net, {.devices = {{at::kCUDA, 0}, {at::kCUDA, 1}}});
///     auto loss = torch::nn::functional::cross_entropy(model(images), labels);
///     loss.backward();
///
/// `Module` is a `torch::nn` module holder, a `std::shared_ptr` of a module, or a `torch::jit::Module`. The
/// wrapper is a handle, and so are its copies. Prefer DistributedDataParallel for several processes and for
/// speed: its backward is parallel on CPUs too. Replicas on CPUs draw random numbers (dropout) from one
/// generator, in no fixed order. One thread at a time.
template <class Module>
class DataParallel {
 public:
  using MakeReplica = typename parallel::Replicas<Module>::Make;

  /// `make_replica` creates a module with the structure of `module` and any values; it is not needed for
  /// TorchScript and for modules that derive from torch::nn::Cloneable. *Local*. Throws UsageError if the
  /// module cannot be copied, or if devices are of different types.
  explicit DataParallel(Module module, const DataParallelOptions& options = {},
                        const MakeReplica& make_replica = {})
      : state_(std::make_shared<State>(std::move(module), resolved(options), make_replica)) {}

  /// The module's forward on all replicas. Tensors among the arguments, also inside tuples, ranges and maps,
  /// are split; everything else is passed to each replica. *Local*. Throws UsageError if tensors have
  /// different numbers of samples or the module is no longer on its device. An exception of a replica is
  /// rethrown as an Error that names the replica.
  template <class... Inputs>
  auto operator()(Inputs&&... inputs) {
    auto parts = scattered(std::tuple<std::decay_t<Inputs>...>(std::forward<Inputs>(inputs)...));
    auto& replicas = state_->replicas.ready(parts.size());
    // Not in a thread, because there is nothing to wait for.
    if (state_->options.devices.size() == 1)
      return std::apply([&](auto&... values) { return parallel::call(replicas.front(), values...); },
                        parts.front());
    return parallel::gather(parallel::parallel_apply(replicas, std::move(parts), state_->threads),
                            *state_->options.output_device, state_->options.dim);
  }

  template <class... Inputs>
  auto forward(Inputs&&... inputs) {
    return (*this)(std::forward<Inputs>(inputs)...);
  }

  /// The module itself, for optimizers, saving, and evaluation on one device.
  Module& module() { return state_->replicas.source(); }
  const Module& module() const { return state_->replicas.source(); }

  /// Members of the module: `model->train()`.
  auto* operator->() { return &parallel::module_of(module()); }

  /// With all defaults resolved: the devices in use.
  const DataParallelOptions& options() const noexcept { return state_->options; }

  /// See Replicas::forget. *Local*.
  void forget_replicas() { state_->replicas.forget(); }

 private:
  struct State {
    State(Module module, const DataParallelOptions& all, const MakeReplica& make_replica)
        : options(all),
          replicas(std::move(module), options.devices, make_replica),
          threads(options.devices.size() > 1 ? options.devices : std::vector<at::Device>{}) {}

    DataParallelOptions options;
    parallel::Replicas<Module> replicas;
    parallel::ReplicaThreads threads;
  };

  /// Without arguments there is nothing to split: one replica runs.
  template <class Inputs>
  std::vector<Inputs> scattered(Inputs inputs) const {
    if constexpr (std::tuple_size_v<Inputs> == 0) return {std::move(inputs)};
    return parallel::scatter(inputs, state_->options.devices, state_->options.dim);
  }

  std::shared_ptr<State> state_;
};

}  // namespace lockstep
