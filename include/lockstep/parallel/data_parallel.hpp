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
  /// One replica for each; the module itself must be on the first. None: all CUDA devices of this process, or
  /// the CPU alone without any. A device may be named several times: replicas on CPUs are for tests and for
  /// models whose single operations are too small for all cores.
  std::vector<at::Device> devices = {};

  /// Where the gathered outputs are: the first device, unless named.
  std::optional<at::Device> output_device = {};

  /// The dimension of inputs and outputs that counts samples.
  std::int64_t dim = 0;
};

/// The options with every choice made. Throws UsageError for devices of different kinds.
DataParallelOptions resolved(DataParallelOptions options);

/// Data parallelism inside one process: a batch is cut into chunks, one for each device, replicas of the
/// module work on them in threads, and the outputs are put together again. Gradients end in the source
/// module's parameters, the sum over the replicas', as a single device would compute them for the whole
/// batch. The meaning is torch.nn.DataParallel's: at::chunk's rule for uneven batches, fewer chunks than
/// devices for small ones, of a loss computed inside forward one element for each replica (take its mean),
/// and buffers as the replica on the first device leaves them. Unlike there, replicas are kept and only what
/// has changed is copied.
///
///     lockstep::DataParallel model(net, {.devices = {{at::kCUDA, 0}, {at::kCUDA, 1}}});
///     auto loss = torch::nn::functional::cross_entropy(model(images), labels);
///     loss.backward();
///
/// `Module` is a `torch::nn` module holder, a `std::shared_ptr` of a module, or a `torch::jit::Module`. The
/// wrapper is a handle, and so are its copies. For several processes, and for speed, prefer
/// DistributedDataParallel: there backward runs in parallel on CPUs too. Replicas on CPUs draw random numbers
/// (dropout) from one generator, in no fixed order. One thread at a time.
template <class Module>
class DataParallel {
 public:
  using MakeReplica = typename parallel::Replicas<Module>::Make;

  /// `make_replica` builds a module like `module`, with any values; modules that derive from
  /// torch::nn::Cloneable and TorchScript need none. *Local*. Throws UsageError when the module cannot be
  /// copied, and for devices of different kinds.
  explicit DataParallel(Module module, const DataParallelOptions& options = {},
                        const MakeReplica& make_replica = {})
      : state_(std::make_shared<State>(std::move(module), resolved(options), make_replica)) {}

  /// The module's forward on all replicas. Tensors among the arguments, also inside of tuples, ranges and
  /// maps, are cut; everything else goes to each replica. *Local*. Throws UsageError when tensors have
  /// different numbers of samples and when the module has left its device; what a replica throws comes as an
  /// Error that names it.
  template <class... Inputs>
  auto operator()(Inputs&&... inputs) {
    auto parts = scattered(std::tuple<std::decay_t<Inputs>...>(std::forward<Inputs>(inputs)...));
    auto& replicas = state_->replicas.ready(parts.size());
    // Not through a thread: nothing is to be waited for.
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

  /// The module itself: what optimizers, saving and evaluation on one device take.
  Module& module() { return state_->replicas.source(); }
  const Module& module() const { return state_->replicas.source(); }

  /// Members of the module: `model->train()`.
  auto* operator->() { return &parallel::module_of(module()); }

  /// With every choice made: the devices are those in use.
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

  /// Without arguments there is nothing to divide: one replica runs.
  template <class Inputs>
  std::vector<Inputs> scattered(Inputs inputs) const {
    if constexpr (std::tuple_size_v<Inputs> == 0) return {std::move(inputs)};
    return parallel::scatter(inputs, state_->options.devices, state_->options.dim);
  }

  std::shared_ptr<State> state_;
};

}  // namespace lockstep
