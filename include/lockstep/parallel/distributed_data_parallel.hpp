#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/process_group.hpp"
#include "lockstep/parallel/comm_hook.hpp"
#include "lockstep/parallel/ddp_statistics.hpp"
#include "lockstep/parallel/module_tensors.hpp"

namespace lockstep {

/// What happens if a rank's gradients contain NaN or infinity.
enum class NonFiniteGradients {
  ignore,  ///< Nothing: they spread to all ranks.
  warn,    ///< Rank 0 prints the rank and the parameter to standard error.
  skip,    ///< The same, and drops all gradients on all ranks, so that the optimizer's step changes nothing.
  error,   ///< Backward throws Error on every rank; it names the rank and the parameter.
};

/// Names, defaults and meaning as in torch.nn.parallel.DistributedDataParallel.
struct DistributedDataParallelOptions {
  /// Gradients are reduced in buckets of about this many MiB, overlapped with backward.
  double bucket_cap_mb = 25.0;

  /// Copy rank 0's buffers (batch norm's statistics) to the other ranks before the first forward, and before
  /// every forward that follows a synchronized one.
  bool broadcast_buffers = true;

  /// Search the graph after every forward for parameters that were not used. Without it, such a parameter is
  /// an error in the next forward.
  bool find_unused_parameters = false;

  /// Promises that every iteration uses the same parameters in the same way. Allows unused parameters and
  /// re-entrant backward without a search.
  bool static_graph = false;

  /// Let `.grad` be a view into the bucket, which saves one copy of all gradients. Clear such gradients with
  /// zero_grad of this class or of an optimizer of Lockstep: that of torch::optim throws on views.
  bool gradient_as_bucket_view = false;

  /// Names of parameters whose gradients are sparse (weights of `sparse` embeddings).
  std::vector<std::string> sparse_parameters = {};

  /// Checks every gradient before it is sent, in one pass over the buckets. Not with sparse_parameters.
  NonFiniteGradients non_finite_gradients = NonFiniteGradients::ignore;

  /// When rank 0 reports slow ranks. On CPUs only.
  StragglerOptions stragglers = {};
};

/// Options of DistributedDataParallel::join. Names, defaults and meaning as in PyTorch.
struct JoinOptions {
  /// Divide gradients by the number of all ranks, instead of those that still have batches.
  bool divide_by_initial_world_size = true;
  /// All ranks throw Error as soon as one rank has no more batches.
  bool throw_on_early_termination = false;
};

/// Receives parameters and their averaged gradients.
using ApplyGradients =
    std::function<void(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& gradients)>;

/// Clears the gradient of one parameter: drops it, or fills it with zeros in place. Works on views into
/// buckets, unlike torch::optim's zero_grad. *Local*.
void clear_gradient(const at::Tensor& parameter, bool set_to_none = true);

/// Which gradients share a bucket: the numbers of the parameters of each bucket, in order.
using BucketLayout = std::vector<std::vector<std::size_t>>;

/// The part that does not depend on the module's type. Use it through DistributedDataParallel.
class DistributedDataParallelBase {
 public:
  /// While it exists, backward accumulates local gradients without communication; the first synchronized
  /// backward after it reduces the sum. The forward must run inside as well. *Local*, but every rank must do
  /// the same.
  class [[nodiscard]] NoSync {
   public:
    explicit NoSync(DistributedDataParallelBase& ddp);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    std::shared_ptr<struct DdpState> state_;
    bool before_;
  };

  NoSync no_sync() { return NoSync(*this); }

  /// Clears the gradients of all parameters: drops them, or fills them with zeros in place. Works on bucket
  /// views; to keep the memory that gradient_as_bucket_view saves, fill with zeros. *Local*.
  void zero_grad(bool set_to_none = true);

  /// The trained parameters, each once, in the order of registration.
  const std::vector<NamedTensor>& parameters() const;
  /// The buffers that the module had when it was wrapped.
  const std::vector<NamedTensor>& buffers() const;

  const ProcessGroup& process_group() const;
  const DistributedDataParallelOptions& options() const;

  /// From the next forward on, `hook` averages the gradients instead of a plain all-reduce. It replaces an
  /// earlier hook. Does nothing in a group of one. *Collective*, between a backward and the next forward.
  /// Throws UsageError if the hook is null, and with sparse_parameters; CommunicationError on every rank if
  /// the ranks' hooks have different names.
  void register_comm_hook(std::shared_ptr<CommHook> hook);

  /// From now on, backward passes the averaged gradients of each bucket to `apply` as soon as they are
  /// available, while other buckets are still being reduced, and leaves none in `.grad`. Used by
  /// step_in_backward(). *Local*, but every rank must do the same. Does nothing in a group of one.
  void apply_in_backward(ApplyGradients apply);

  /// The measurements of this rank so far; only the number of parameters in a group of one. *Local*.
  DdpStatistics statistics() const;

  /// How the next backward groups the gradients, as numbers of parameters(). The first backward of a wrapper
  /// uses other groups than later ones. With three or more ranks that do not share memory, the order in which
  /// the ranks' values are added depends on the groups, so resuming from a checkpoint with the same bits
  /// needs them too. Empty in a group of one. *Collective*, between a backward and the next forward.
  BucketLayout bucket_layout();
  /// Sets the groups of the next backward; later ones use the order in which that backward produced the
  /// gradients. Ignored in a group of one. *Collective*, between a backward and the next forward. Throws
  /// UsageError unless every parameter occurs once.
  void set_bucket_layout(const BucketLayout& layout);

 protected:
  DistributedDataParallelBase(std::vector<NamedTensor> parameters, std::vector<NamedTensor> buffers,
                              const ProcessGroup& group, const DistributedDataParallelOptions& options);
  ~DistributedDataParallelBase() = default;
  DistributedDataParallelBase(const DistributedDataParallelBase&) = default;
  DistributedDataParallelBase& operator=(const DistributedDataParallelBase&) = default;

  void join_after(const std::function<void()>& body, const JoinOptions& options,
                  const std::function<std::vector<NamedTensor>()>& buffers,
                  const std::function<std::vector<NamedTensor>()>& parameters);

  /// Whether the next forward compares the parameters with those that were wrapped.
  bool watches_parameters() const;
  /// Whether the next forward copies buffers from rank 0.
  bool sends_buffers() const;
  /// `parameters`: the module's present ones; `names` names them if one is not as it was wrapped.
  void before_forward(const std::vector<at::Tensor>& parameters,
                      const std::function<std::vector<NamedTensor>()>& names,
                      const std::vector<NamedTensor>& buffers);
  /// Takes the tensors of forward's output, and returns those to be used in their place.
  std::vector<at::Tensor> after_forward(std::vector<at::Tensor> outputs);

 private:
  std::shared_ptr<struct DdpState> state_;
};

/// Data-parallel training with one replica per rank: gradients are averaged over the group during backward,
/// overlapped with it, bucket by bucket. `Module` is a `torch::nn` module holder, a `std::shared_ptr` of a
/// module, or a `torch::jit::Module` (TorchScript, for example saved by Python). The wrapper stores the
/// module by value, which is a handle for all of these; copies of the wrapper are handles too.
///
///     lockstep::DistributedDataParallel ddp(model, group);
///     auto loss = torch::mse_loss(ddp(input), target);
///     loss.backward();                       // gradients are now equal on all ranks
///
/// At least one parameter must require a gradient, and all of them must be on the group's device. In a group
/// of one, nothing is communicated, and the module behaves as if it were not wrapped.
template <class Module>
class DistributedDataParallel : public DistributedDataParallelBase {
 public:
  /// Checks that all ranks have the same parameters and buffers (names, shapes, dtypes; strides of trained
  /// ones, in whose order gradients are sent; which are tied), then copies rank 0's
  /// values to the others. *Collective*. Throws CommunicationError on every rank, which names the parameter
  /// and the ranks that differ; UsageError if no parameter requires a gradient.
  DistributedDataParallel(Module module, const ProcessGroup& group,
                          const DistributedDataParallelOptions& options = {})
      : DistributedDataParallelBase(parallel::named_parameters_of(module), parallel::named_buffers_of(module),
                                    group, options),
        module_(std::move(module)) {}

  /// The module's forward. *Collective* if gradients are enabled or buffers are sent: every rank must call it
  /// the same number of times. Throws Error if the last backward left parameters without a gradient, and
  /// names them; UsageError if a parameter was converted, or one is trained that was not when the module was
  /// wrapped. Values may be loaded into the module at any time.
  ///
  /// A backward from the outputs averages the gradients, also a second one, or one after another forward. It
  /// throws UsageError if gradients would not be averaged: some parameters were frozen, the wrapper is gone,
  /// create_graph is set, or it is a second one with find_unused_parameters, static_graph or in join().
  template <class... Inputs>
  auto operator()(Inputs&&... inputs) {
    before_forward(
        watches_parameters() ? parallel::parameters_of(module_) : std::vector<at::Tensor>{},
        [this] { return parallel::named_parameters_of(module_); },
        sends_buffers() ? parallel::named_buffers_of(module_) : std::vector<NamedTensor>{});
    auto output = parallel::call(module_, std::forward<Inputs>(inputs)...);
    pass_on(output);
    return output;
  }

  /// Runs `body`, a loop over this rank's batches, when ranks may have different numbers of them. A rank that
  /// has finished takes part in the others' communication with zero gradients until all have finished. Then
  /// all ranks get the parameters and buffers of the rank that finished last. Forward and backward of this
  /// wrapper must be the only collectives in the body. *Collective*. Throws UsageError with
  /// sparse_parameters, if gradients are applied in backward and if ranks end accumulation windows with
  /// different batches; Error if a rank lacks a static graph's first backward.
  template <class Body>
  void join(Body&& body, const JoinOptions& options = {}) {
    join_after(
        std::forward<Body>(body), options, [this] { return parallel::named_buffers_of(module_); },
        [this] { return parallel::named_parameters_of(module_); });
  }

  template <class... Inputs>
  auto forward(Inputs&&... inputs) {
    return (*this)(std::forward<Inputs>(inputs)...);
  }

  /// The module itself.
  Module& module() { return module_; }
  const Module& module() const { return module_; }

  /// Members of the module: `ddp->train()`.
  auto* operator->() { return &parallel::module_of(module_); }

 private:
  template <class Output>
  void pass_on(Output& output) {
    std::vector<at::Tensor> tensors;
    parallel::visit_tensors(output, [&](at::Tensor& tensor) { tensors.push_back(tensor); });
    tensors = after_forward(std::move(tensors));
    auto next = tensors.begin();
    parallel::visit_tensors(output, [&](at::Tensor& tensor) { tensor = *next++; });
  }

  Module module_;
};

}  // namespace lockstep
