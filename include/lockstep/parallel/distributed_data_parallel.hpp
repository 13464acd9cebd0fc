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

/// What happens when a rank's gradients hold NaN or infinity.
enum class NonFiniteGradients {
  ignore,  ///< Nothing: they spread to all ranks.
  warn,    ///< Rank 0 names the rank and the parameter on standard error.
  skip,    ///< Also drops all gradients on all ranks, so that the optimizer's step changes nothing.
  error,   ///< Backward throws Error on every rank, with the rank and the parameter.
};

/// Names, defaults and meaning as in torch.nn.parallel.DistributedDataParallel.
struct DistributedDataParallelOptions {
  /// Gradients are reduced in buckets of about this many MiB, while backward goes on.
  double bucket_cap_mb = 25.0;

  /// Copy rank 0's buffers (batch norm's statistics) to the other ranks before every forward that is
  /// synchronised.
  bool broadcast_buffers = true;

  /// Look through the graph after every forward for parameters that took no part in it; without it, such a
  /// parameter is an error in the next forward.
  bool find_unused_parameters = false;

  /// The promise that every iteration uses the same parameters in the same way. Allows unused parameters and
  /// re-entrant backward without searching.
  bool static_graph = false;

  /// Let `.grad` be a view into the bucket: saves one copy of all gradients. Clear such gradients with
  /// zero_grad of this class or of a prepared optimizer: torch::optim's own throws on views.
  bool gradient_as_bucket_view = false;

  /// Names of parameters whose gradients are sparse (weights of `sparse` embeddings).
  std::vector<std::string> sparse_parameters = {};

  /// Looks at every gradient before it is sent: one pass over the buckets. Not with sparse_parameters.
  NonFiniteGradients non_finite_gradients = NonFiniteGradients::ignore;

  /// When rank 0 names ranks that keep the others waiting. On CPUs only.
  StragglerOptions stragglers = {};
};

/// For DistributedDataParallel::join. Names, defaults and meaning as there in PyTorch.
struct JoinOptions {
  /// Divide gradients by the number of ranks, and not by the number of those that still have batches.
  bool divide_by_initial_world_size = true;
  /// As soon as one rank has no more batches, all ranks throw Error.
  bool throw_on_early_termination = false;
};

/// Takes parameters and their averaged gradients.
using ApplyGradients =
    std::function<void(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& gradients)>;

/// Clears the gradient of one parameter: drops it, or fills it with zeros in place. Works on views into
/// buckets, which torch::optim's zero_grad does not. *Local*.
void clear_gradient(const at::Tensor& parameter, bool set_to_none = true);

/// Which gradients travel together: for each bucket the numbers of its parameters, in order.
using BucketLayout = std::vector<std::vector<std::size_t>>;

/// What does not depend on the module's type. Use it through DistributedDataParallel.
class DistributedDataParallelBase {
 public:
  /// While it lives, backward adds to the local gradients and sends nothing; the first synchronised backward
  /// after it sends the sum. The forward must happen inside as well. *Local*, but every rank must do the
  /// same.
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

  /// The parameters that are trained: each once, in the order of registration.
  const std::vector<NamedTensor>& parameters() const;

  const ProcessGroup& process_group() const;
  const DistributedDataParallelOptions& options() const;

  /// From the next forward on, `hook` averages the gradients in place of a plain all-reduce; another one
  /// replaces it. Does nothing in a group of one. *Collective*, between a backward and the next forward.
  /// Throws UsageError without a hook, and with sparse_parameters; CommunicationError on every rank when the
  /// ranks' hooks have different names.
  void register_comm_hook(std::shared_ptr<CommHook> hook);

  /// From now on backward gives each bucket's averaged gradients to `apply` as soon as they are there, while
  /// others are on their way, and leaves none in `.grad`. For step_in_backward(), which see. *Local*, but
  /// every rank must do the same. Does nothing in a group of one.
  void apply_in_backward(ApplyGradients apply);

  /// What has been measured on this rank so far; empty in a group of one. *Local*.
  DdpStatistics statistics() const;

  /// How the next backward groups the gradients, as numbers of parameters(). The first backward of a wrapper
  /// groups them in another way than the later ones, and with three ranks or more that do not share memory
  /// the order in which the ranks' values are added depends on it: whoever goes on from a checkpoint with the
  /// same bits needs this as well. Empty in a group of one. *Collective*, between a backward and the next
  /// forward.
  BucketLayout bucket_layout();
  /// The next backward groups them so; the ones after it by the order in which it had the gradients. Ignored
  /// in a group of one. *Collective*, between a backward and the next forward. Throws UsageError unless every
  /// parameter is in it once.
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

  /// Whether the next forward copies buffers from rank 0.
  bool sends_buffers() const;
  void before_forward(const std::vector<NamedTensor>& buffers);
  /// Takes what forward returned, tensor by tensor, and gives what the caller must get instead.
  std::vector<at::Tensor> after_forward(std::vector<at::Tensor> outputs);

 private:
  std::shared_ptr<struct DdpState> state_;
};

/// Data-parallel training of one replica a rank: gradients are averaged over the group during backward,
/// overlapped with it, bucket by bucket. `Module` is a `torch::nn` module holder, a `std::shared_ptr` of a
/// module, or a `torch::jit::Module` (TorchScript, for example written by Python). The wrapper keeps the
/// module by value, which for all of these is a handle; copies of the wrapper are handles too.
///
///     lockstep::DistributedDataParallel ddp(model, group);
///     auto loss = torch::mse_loss(ddp(input), target);
///     loss.backward();                       // gradients are now equal on all ranks
///
/// At least one parameter must require a gradient, and all of them must be on the group's device.
/// In a group of one nothing is sent and the module behaves as if it were not wrapped.
template <class Module>
class DistributedDataParallel : public DistributedDataParallelBase {
 public:
  /// Checks that all ranks have the same parameters and buffers (names, shapes, dtypes), then copies rank 0's
  /// values to the others. *Collective*. Throws CommunicationError on every rank, naming the parameter and
  /// the ranks that differ; UsageError when no parameter requires a gradient.
  DistributedDataParallel(Module module, const ProcessGroup& group,
                          const DistributedDataParallelOptions& options = {})
      : DistributedDataParallelBase(parallel::named_parameters_of(module), parallel::named_buffers_of(module),
                                    group, options),
        module_(std::move(module)) {}

  /// The module's forward. *Collective* when gradients are on, and when buffers are sent: every rank must
  /// call it equally often. Throws Error when the last backward left parameters without a gradient, naming
  /// them.
  template <class... Inputs>
  auto operator()(Inputs&&... inputs) {
    before_forward(sends_buffers() ? parallel::named_buffers_of(module_) : std::vector<NamedTensor>{});
    auto output = parallel::call(module_, std::forward<Inputs>(inputs)...);
    pass_on(output);
    return output;
  }

  /// Runs `body`, a loop over this rank's batches, where ranks may have different numbers of them: a rank
  /// that is through takes part in what the others still send, with gradients of zero, until all are. Then
  /// all ranks get the parameters and buffers of the one that was last. The body must do nothing collective
  /// but forward and backward of this wrapper. *Collective*. Throws UsageError with sparse_parameters and
  /// with gradients that are applied in backward.
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
