#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/checkpoint_info.hpp"
#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/comm/process_group.hpp"
#include "lockstep/data/data_loader.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "lockstep/train/accelerated.hpp"
#include "lockstep/train/accelerator_options.hpp"
#include "lockstep/train/checkpointing.hpp"
#include "lockstep/train/gradient_accumulation.hpp"
#include "lockstep/train/model_files.hpp"
#include "lockstep/train/process_execution.hpp"
#include "lockstep/train/profiler.hpp"
#include "lockstep/train/structures.hpp"
#include "lockstep/train/tracking.hpp"

namespace lockstep {

namespace train {
class TrainingScope;
}

/// The entry point of a training program: rank, device, and one loop for a single process and for many. Names
/// and meaning follow Hugging Face Accelerate. The object owns its state; nothing is global.
///
///     lockstep::Accelerator accelerator;
///     auto [ddp, opt, batches] = accelerator.prepare(model, optimizer, loader);
///     for (auto& batch : batches) {
///       auto loss = torch::nn::functional::cross_entropy(ddp(batch["image"]), batch["label"]);
///       accelerator.backward(loss);
///       opt.step();
///       opt.zero_grad();
///     }
///     accelerator.save_model(ddp, "out");
///
/// In a single process, every method works and none waits. *Collective* methods must be called by every
/// process. One thread at a time. Copies are handles to the same state.
///
/// The rest of the API is inherited from ProcessExecution (what runs on which rank, and in which order),
/// GradientAccumulation (accumulation, mixed precision, clipping) and Tracking (logging).
class Accelerator : public ProcessExecution, public GradientAccumulation, public Tracking {
 public:
  /// Joins the world that the environment variables describe (see World). *Collective*.
  explicit Accelerator(const AcceleratorOptions& options = {});
  /// Joins the given world. *Collective*.
  explicit Accelerator(const World& world, const AcceleratorOptions& options = {});
  /// Uses an existing group, for example one with threads as ranks. `world` defines the local ranks. *Local*.
  Accelerator(const World& world, const ProcessGroup& group, const AcceleratorOptions& options = {});

  /// The options that it was created with.
  const AcceleratorOptions& options() const noexcept;
  const World& world() const noexcept;
  const ProcessGroup& process_group() const noexcept;
  const at::Device& device() const noexcept;
  int num_processes() const noexcept { return world().world_size; }
  int process_index() const noexcept { return world().rank; }
  int local_process_index() const noexcept { return world().local_rank; }
  bool is_main_process() const noexcept { return world().is_main_process(); }
  bool is_local_main_process() const noexcept { return world().is_local_main_process(); }
  bool is_last_process() const noexcept { return world().is_last_process(); }

  // ---- Order of processes

  /// Returns when every process has called it. Throws TimeoutError, which names the missing ranks, after the
  /// timeout. *Collective*.
  void wait_for_everyone() const;

  /// `const auto guard = accelerator.main_process_first();`: rank 0 runs the scope first, then all others.
  /// See MainProcessFirst for waiting and errors. *Collective*.
  MainProcessFirst main_process_first() const;
  /// The same on each node: local rank 0 first, then the other ranks of the node. *Collective* on each node.
  MainProcessFirst local_main_process_first() const;

  /// Runs `action` on rank 0 first, then on the other ranks, and returns the result of this rank's call. An
  /// exception on rank 0 is thrown on every rank, with its text. *Collective*.
  template <class Action>
  auto main_process_first(Action&& action) const {
    return in_order(main_process_first(), std::forward<Action>(action));
  }
  template <class Action>
  auto local_main_process_first(Action&& action) const {
    return in_order(local_main_process_first(), std::forward<Action>(action));
  }

  /// Writes the parts, one after the other, and a newline to standard output, on rank 0 only. *Local*.
  template <class... Parts>
  void print(const Parts&... parts) const {
    if (!is_main_process()) return;
    std::ostringstream line;
    (line << ... << parts) << '\n';
    write_line(line.str());
  }

  // ---- The training loop

  /// Prepares each object for this job and returns them in the same order (one object, or a tuple):
  ///
  /// - A module moves to the device and becomes an AcceleratedModel, which wraps it in a
  ///   DistributedDataParallel, or with AcceleratorOptions::fsdp_plugin in a FullyShardedDataParallel. One
  ///   without a parameter that requires a gradient (a teacher) only gets rank 0's values: see FrozenModel.
  /// - An optimizer becomes an AcceleratedOptimizer that refers to it: a variable of the program. Checkpoints
  ///   contain it while it exists; of a class of the program, while a copy of the result does.
  /// - A scheduler (optim::LrScheduler, optim::ReduceLrOnPlateau) becomes an AcceleratedScheduler, likewise.
  /// - A DataLoader becomes this rank's share of it, sharded by AcceleratorOptions::dataloader_config, with
  ///   its batches on the device.
  ///
  /// What is already prepared is returned unchanged, but a loader can be prepared only once, and its sampler
  /// must return all samples (UsageError). save_state() saves all that was prepared since free_memory(),
  /// which ends the hold of models and loaders: call it between trainings. *Collective* if a module is among
  /// them.
  template <class... Objects>
  auto prepare(Objects&&... objects) {
    static_assert(sizeof...(Objects) > 0, "prepare() needs something to prepare");
    static_assert((is_preparable<Objects> && ...),
                  "prepare() takes modules, optimizers, schedulers of lockstep::optim and DataLoaders");
    if constexpr (!(is_preparable<Objects> && ...)) {
      return std::tuple<>();
    } else if constexpr (sizeof...(Objects) == 1) {
      return prepare_one(std::forward<Objects>(objects)...);
    } else {
      return std::tuple{prepare_one(std::forward<Objects>(objects))...};
    }
  }

  /// The rows of `tensor` of all processes, in rank order, on every process. The number of rows (dimension 0)
  /// may differ; a scalar counts as one row. *Collective*. Throws CommunicationError, on every rank and
  /// before any data is sent, if dtypes or other dimensions differ; the text lists those of each rank.
  at::Tensor gather(const at::Tensor& tensor) const;

  /// `tensor` reduced over all processes, as a new tensor. Shapes are compared first, as in gather.
  /// *Collective*.
  at::Tensor reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::sum) const;

  /// For a model that is not trained: moves it to the device in evaluation mode, without communication.
  /// *Local*.
  template <class Model>
  Model prepare_for_evaluation(Model model) const {
    parallel::module_of(model).to(device());
    parallel::module_of(model).eval();
    return model;
  }

  /// The same for every tensor of a collection (a Batch, a vector, a map, a pair or a tuple of these).
  /// *Collective*: the collections must have the same structure on every rank.
  template <class Collection>
  Collection gather(const Collection& tensors) const {
    return each_of(tensors, [this](const at::Tensor& tensor) { return gather(tensor); });
  }
  /// A Batch; its texts, `indices` and `valid` are gathered too.
  Batch gather(const Batch& batch) const;

  /// Gathers the rows of `tensors`, which were computed from `batch`, without those of samples that were only
  /// repeated to complete a batch (see Batch::valid). Over an epoch each sample appears exactly once,
  /// whatever the batch sizes, the numbers of ranks and batches, and the position at which the epoch began. A
  /// tensor may have several consecutive rows per sample. With Sharding::by_batch the rows are in the order
  /// of the loader's sampler; otherwise gather the indices to identify them:
  ///
  ///     auto [logits, labels, indices] = accelerator.gather_for_metrics(
  ///         std::tuple{model(batch["x"]), batch["y"], at::tensor(batch.indices)}, batch);
  ///
  /// *Collective*. Throws UsageError if the number of rows is not a multiple of the batch's samples.
  template <class Collection>
  Collection gather_for_metrics(const Collection& tensors, const Batch& batch) const {
    return each_of(tensors, [&](const at::Tensor& tensor) { return gather_for_metrics(tensor, batch); });
  }
  at::Tensor gather_for_metrics(const at::Tensor& tensor, const Batch& batch) const;
  /// The batch itself, with its texts and `indices`; all rows are valid.
  Batch gather_for_metrics(const Batch& batch) const;
  /// Does not compile: only the batch knows which rows are valid.
  template <class Collection>
  void gather_for_metrics(const Collection& /*tensors*/) const {
    static_assert(sizeof(Collection) == 0,
                  "gather_for_metrics(tensors, batch) needs the batch that the tensors were computed from");
  }

  /// The objects of all processes, in rank order, on every process. The number of objects may differ.
  /// *Collective*.
  std::vector<std::string> gather_object(const std::vector<std::string>& objects) const;
  std::vector<nlohmann::json> gather_object(const std::vector<nlohmann::json>& objects) const;

  /// `tensor` padded in dimension `dim` to the largest size on any process, with `pad_index` after the
  /// values, or before them with `pad_first`. A negative `dim` counts from the last dimension; a tensor
  /// without that dimension is returned unchanged. *Collective*. Throws CommunicationError, which lists those
  /// of each rank, if dtypes or numbers of dimensions differ.
  at::Tensor pad_across_processes(const at::Tensor& tensor, std::int64_t dim = 0, double pad_index = 0,
                                  bool pad_first = false) const;
  /// The same for every tensor of a collection.
  template <class Collection>
  Collection pad_across_processes(const Collection& tensors, std::int64_t dim = 0, double pad_index = 0,
                                  bool pad_first = false) const {
    return each_of(tensors, [&](const at::Tensor& tensor) {
      return pad_across_processes(tensor, dim, pad_index, pad_first);
    });
  }

  /// The values of process `from`, as new tensors. Shapes are compared first, as in reduce. *Collective*.
  at::Tensor broadcast(const at::Tensor& tensor, int from = 0) const;
  template <class Collection>
  Collection broadcast(const Collection& tensors, int from = 0) const {
    return each_of(tensors, [&](const at::Tensor& tensor) { return broadcast(tensor, from); });
  }

  /// This process's share of `inputs` (a vector, a tensor or a Batch by its rows, or a map or a tuple of
  /// these with equal lengths): contiguous blocks in rank order, see SplitRange. With `apply_padding` every
  /// process gets the same number, so that results can be gathered. The first n gathered results of n inputs
  /// are the real ones if only the last process has repeated inputs; otherwise each process must drop its
  /// repetitions first. *Local*.
  template <class Inputs>
  Inputs split_between_processes(const Inputs& inputs, bool apply_padding = false) const {
    static_assert(Splittable<Inputs>,
                  "split_between_processes() takes vectors, tensors, Batches, and maps and tuples of such");
    if constexpr (Splittable<Inputs>) {
      return split_part(inputs,
                        split_range(split_length(inputs), num_processes(), process_index(), apply_padding));
    } else {
      return inputs;
    }
  }

  /// Skips the next `num_batches` batches of this process in the loader's current epoch without reading them
  /// (those of a stream are read); later epochs are complete. Returns the loader. *Local*; for streams,
  /// *Collective* if iterating the loader is. Every rank must skip the same number. Not needed after
  /// load_state(), which restores the position of loaders. Throws UsageError if fewer batches are left.
  static DataLoader& skip_first_batches(DataLoader& loader, std::int64_t num_batches) {
    loader.skip_batches(num_batches);
    return loader;
  }

  /// Runs `body`, a loop over this rank's batches, when ranks may have different numbers of them: see
  /// DistributedDataParallel::join. If `even_batches` is given, it replaces
  /// DataLoaderConfiguration::even_batches of all prepared loaders while `body` runs; no epoch may be in
  /// progress. *Collective*.
  template <class Model, class Body>
  void join_uneven_inputs(Model& model, Body&& body, const JoinOptions& options = {},
                          std::optional<bool> even_batches = std::nullopt) {
    const auto meanwhile = even_batches_as(even_batches);
    model.join(std::forward<Body>(body), options);
  }

  // ---- Models

  /// The module inside a prepared model. A module that is not wrapped is returned unchanged. *Local*.
  template <class Model>
  auto& unwrap_model(Model& model) const {
    if constexpr (requires {
                    model.module();
                    model.process_group();
                  }) {
      return model.module();
    } else {
      return model;
    }
  }

  /// The parameters and buffers of a model, prepared or not, by the module's own names. They are the model's
  /// tensors, not copies. *Local*. For a fully sharded model, rank 0 gets copies of the full tensors on the
  /// CPU and the other ranks get nothing, as in Accelerate; then it is *Collective*.
  template <class Model>
  TensorMap get_state_dict(Model& model) const {
    TensorMap tensors;
    for (const auto& entry : whole_state(state_of(unwrap_model(model))))
      tensors.emplace(entry.name, entry.tensor.detach());
    return tensors;
  }

  /// Rank 0 writes the tensors to a safetensors file, atomically; the folder must exist. When it returns, the
  /// file is complete. If writing fails, every process throws. *Collective*.
  void save(const TensorMap& tensors, const std::filesystem::path& path) const;

  /// Rank 0 writes the model's parameters and buffers to `folder`/model.safetensors in the same way; more
  /// than `max_shard_bytes` as shards with an index: see write_model. No rank holds more than one full tensor
  /// of a sharded model. Of one with an adapter, that in PEFT's adapter_model.safetensors. *Collective*.
  template <class Model>
  void save_model(Model& model, const std::filesystem::path& folder,
                  std::uint64_t max_shard_bytes = kMaxShardBytes) const {
    save_file_of_model(saved_form(unwrap_model(model)), folder, max_shard_bytes);
  }

  /// Rank 0 reads the file (or the folder that save_model wrote) and sends the values to the other ranks,
  /// which need not see the file. Of a folder without a whole model, a model with an adapter reads that.
  /// *Collective*. Throws DataError (RemoteError on the other ranks) if the file does not fit the model; then
  /// nothing has changed. A fully sharded model is read tensor by tensor: a read error leaves it partly
  /// loaded, and the error says so.
  template <class Model>
  void load_model(Model& model, const std::filesystem::path& path) const {
    load_file_of_model(saved_form(unwrap_model(model)), path);
  }

  /// Until the result is destroyed, models that this thread creates are sharded on construction, if
  /// AcceleratorOptions::fsdp_plugin is set: see ShardedInit. *Local*; creating models meanwhile is
  /// *Collective*.
  std::shared_ptr<void> sharded_init() const;

  /// Until the result is destroyed, the parameters of a prepared, fully sharded model are unsharded, for an
  /// evaluation with different numbers of batches per rank, or to inspect them: see
  /// FullyShardedDataParallel::full_parameters. No effect on other models. *Collective*.
  template <class Model>
  std::shared_ptr<void> full_parameters(Model& model) const {
    return full_parameters_of(state_of(unwrap_model(model)));
  }

  // ---- Checkpoints and stopping

  /// Adds an object to what save_state() and load_state() save and restore. The object must outlive these
  /// calls, which throw UsageError otherwise. `name` becomes part of a file name. *Local*, but every rank
  /// must do the same. Throws UsageError if the name is taken or has characters other than letters, digits,
  /// '_', '-' and '.'.
  void register_for_checkpointing(const std::string& name, Checkpointable& object);

  /// Every save_state() calls `hook` with the checkpoint's path, on every rank, before it copies or writes
  /// anything; so does every load_state(), and every load_latest_state() that found a checkpoint, before it
  /// reads anything. Hooks are called in the order of registration; an exception ends the call. *Local*, but
  /// every rank must do the same if the hook is collective.
  StateHookHandle register_save_state_pre_hook(StateHook hook);
  StateHookHandle register_load_state_pre_hook(StateHook hook);

  /// Forgets all prepared and registered objects, and releases the GPU memory that LibTorch caches: between
  /// trainings with loops of your own. A Trainer forgets its own objects at its end. *Local*.
  void free_memory();

  /// *Local*. Accelerate's profile(): records steps from now on. Call step() on the result after each step.
  ///
  ///     auto profiler = accelerator.profile({.schedule_option = {.skip_first = 10}});
  Profiler profile(const ProfileOptions& options = {}) const { return Profiler(options, process_index()); }

  /// Writes a checkpoint: the values of all prepared models, the state of all prepared optimizers, the
  /// position of all prepared loaders, the random state of every rank, and the registered objects. `path`
  /// appears complete, flushed to disk and with checksums, or not at all; docs/checkpoints.md lists its
  /// files. Rank 0 writes, so only its file system matters. The caller sets the step and the origin of the
  /// run in `info`; the rest is filled in. Parameters without a gradient, and buffers and optimizers that
  /// differ between ranks, are saved as rank 0 has them. *Collective*. If writing fails, rank 0 throws Error
  /// with the system's reason and the other ranks RemoteError; then nothing has changed on the disk.
  void save_state(const std::filesystem::path& path, const CheckpointInfo& info = {},
                  const SaveStateOptions& options = {}) const;

  /// Returns when no checkpoint is being written. *Collective*. Throws the exception of the write (on rank 0;
  /// RemoteError on the others). The Accelerator's destructor waits too, and prints an error to standard
  /// error.
  void wait_for_save() const;

  /// Restores the state of save_state(). With the same number of ranks on CPUs, all further results are
  /// bit-identical to those of a run without the interruption. The same objects must be prepared and
  /// registered, in the same order. With another number of ranks, weights and optimizers are the same, a
  /// loader continues after the samples that were consumed (see DataLoader::load_state), and random numbers
  /// start anew. Rank 0 reads; the others get everything from it. *Collective*. Throws DataError (RemoteError
  /// on the other ranks) if a byte is missing or changed or the checkpoint does not fit the program,
  /// UsageError if a position does not fit; then models, optimizers and objects are unchanged.
  Checkpoint load_state(const std::filesystem::path& path);

  /// The same for the newest complete checkpoint `checkpoint-<step>` in `folder` that `fits` accepts (called
  /// on rank 0; without it, all are accepted). Damaged ones are skipped, and rank 0 names them on standard
  /// error. If there is none, nothing is loaded and `checkpoint` is empty. Every rank gets the same result.
  /// *Collective*. Throws DataError on every rank if there are checkpoints and all of them are damaged:
  /// training must not silently begin anew, and overwrite them.
  LatestCheckpoint load_latest_state(const std::filesystem::path& folder,
                                     const std::function<bool(const CheckpointInfo&)>& fits = {});

  /// This rank requests the job to stop. *Local*.
  void request_stop();

  /// Whether any rank has requested a stop: by request_stop(), or by a signal that a StopSignals object of
  /// the program handles. All ranks get the same answer in the same call, one call after the request. Call it
  /// once per step; the exchange overlaps with the step, so it costs little time. *Collective*. Throws
  /// CommunicationError if a peer is lost.
  bool should_stop();

 private:
  friend class Checkpoints;
  friend class train::TrainingScope;
  struct State;

  template <class Guard, class Action>
  static auto in_order(Guard&& guard, Action&& action) {
    try {
      return action();
    } catch (const std::exception& error) {
      if (guard.is_main()) guard.fail(error.what());
      throw;
    }
  }

  /// Returned unchanged.
  template <class Type>
  static constexpr bool is_prepared =
      std::is_convertible_v<Type&, WrappedModel> || std::is_same_v<Type, AcceleratedOptimizer>;

  template <class Object, class Type = std::remove_cvref_t<Object>>
  static constexpr bool is_preparable =
      std::is_base_of_v<torch::optim::Optimizer, Type> || std::is_base_of_v<optim::Scheduler, Type> ||
      std::is_same_v<Type, DataLoader> || is_prepared<Type> || parallel::ModuleLike<Type>;

  template <class Object>
  auto prepare_one(Object&& object) {
    using Type = std::remove_cvref_t<Object>;
    if constexpr (std::is_base_of_v<torch::optim::Optimizer, Type>) {
      static_assert(std::is_lvalue_reference_v<Object>,
                    "prepare() keeps a pointer to the optimizer: give it a variable");
      auto mark = add_optimizer(object);
      return AcceleratedOptimizer(object, gradients(), std::move(mark));
    } else if constexpr (std::is_base_of_v<optim::Scheduler, Type>) {
      static_assert(std::is_lvalue_reference_v<Object>,
                    "prepare() keeps a pointer to the scheduler: give it a variable");
      add_scheduler(object);
      return AcceleratedScheduler<Type>(object, gradients());
    } else if constexpr (std::is_same_v<Type, DataLoader>) {
      return shard(object);
    } else if constexpr (is_prepared<Type>) {
      return Type(object);
    } else {
      parallel::module_of(object).to(device());
      lay_out(parallel::named_parameters_of(object));
      const auto model = std::make_shared<AcceleratedModel<Type>>(wrapped(object));
      add_model(contents_of(object), *model, model);
      return AcceleratedModel<Type>(*model);
    }
  }

  template <class Module>
  AcceleratedModel<Module> wrapped(const Module& module) {
    Module handle = module;
    if (is_frozen(parallel::named_parameters_of(handle)))
      return {FrozenModel<Module>(handle, process_group()), mixed_precision()};
    if (const auto& plugin = options().fsdp_plugin) {
      if constexpr (parallel::Shardable<Module>) {
        if (plugin->activation_checkpointing) set_activation_checkpointing(module);
        return {fully_shard(module, shard_groups(),
                            {.reshard_after_forward = plugin->reshard_after_forward,
                             .backward_prefetch = plugin->backward_prefetch,
                             .mp_policy = mixed_precision_policy(),
                             .transformer_cls_names_to_wrap = plugin->transformer_cls_names_to_wrap}),
                mixed_precision()};
      } else {
        throw UsageError("fsdp_plugin: a TorchScript module cannot be fully sharded");
      }
    }
    DistributedDataParallel<Module> ddp(module, process_group(), options().ddp);
    add_hook(ddp);
    return {std::move(ddp), mixed_precision()};
  }

  template <class Collection, class Function>
  static Collection each_of(const Collection& tensors, const Function& function) {
    static_assert(TensorCollection<Collection>,
                  "expected tensors: a tensor, a Batch, or a vector, a map, a pair or a tuple of such");
    if constexpr (TensorCollection<Collection>) {
      return tree_map(tensors, function);
    } else {
      return tensors;
    }
  }

  template <class Model>
  static std::vector<NamedTensor> state_of(Model& model) {
    return parallel::named_state_of(model);
  }

  /// Whether no parameter requires a gradient.
  static bool is_frozen(const std::vector<NamedTensor>& parameters);
  parallel::ShardGroups shard_groups() const;
  MixedPrecisionPolicy mixed_precision_policy() const;
  /// AcceleratorOptions::channels_last.
  void lay_out(const std::vector<NamedTensor>& parameters) const;
  DataLoader shard(const DataLoader& loader);
  /// Until the result is destroyed.
  std::shared_ptr<void> even_batches_as(std::optional<bool> even_batches);
  void add_model(ModelContents contents, WrappedModel model, std::shared_ptr<void> owner);
  std::shared_ptr<void> full_parameters_of(const std::vector<NamedTensor>& state) const;
  /// If some of it is fully sharded: full tensors on rank 0, nothing on the other ranks. Otherwise unchanged.
  std::vector<NamedTensor> whole_state(const std::vector<NamedTensor>& state) const;
  void save_file_of_model(const SavedForm& model, const std::filesystem::path& folder,
                          std::uint64_t max_shard_bytes) const;
  void load_file_of_model(const SavedForm& model, const std::filesystem::path& path) const;
  std::shared_ptr<const void> add_optimizer(torch::optim::Optimizer& optimizer);
  void add_scheduler(optim::Scheduler& scheduler);
  LatestCheckpoint find_and_load(const std::function<LatestCheckpoint()>& find);
  /// load_latest_state(); without `must_load`, damaged checkpoints alone are no error.
  LatestCheckpoint load_newest(const std::filesystem::path& folder,
                               const std::function<bool(const CheckpointInfo&)>& fits, bool must_load);
  static void write_line(const std::string& line);

  std::shared_ptr<State> state_;
};

}  // namespace lockstep
