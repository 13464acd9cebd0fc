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

#include "lockstep/checkpoint/checkpoint_folder.hpp"
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

/// The device that AcceleratorOptions::device means for a process of this local rank. *Local*.
/// Throws UsageError for a name that is no device, and for a CUDA device that is not there.
at::Device choose_device(const std::string& name, int local_rank);

/// The first thing that a training program makes: who am I, where do I compute, and the same loop for one
/// process and for many. Names and meaning follow Hugging Face Accelerate; the object owns its state, and
/// nothing is global.
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
/// In a single process everything works and nothing waits. *Collective* methods must be called by every
/// process. One thread at a time. Copies are handles on the same state.
///
/// The rest of the API is inherited from ProcessExecution (who runs what and when), GradientAccumulation
/// (accumulation, mixed precision, clipping) and Tracking (where the numbers of the run go).
class Accelerator : public ProcessExecution, public GradientAccumulation, public Tracking {
 public:
  /// Joins the world that the environment describes (see World). *Collective*.
  explicit Accelerator(const AcceleratorOptions& options = {});
  /// Joins a world given by the program. *Collective*.
  explicit Accelerator(const World& world, const AcceleratorOptions& options = {});
  /// On a group that the program has, for example with threads as ranks. `world` says who is local to whom.
  /// *Local*.
  Accelerator(const World& world, const ProcessGroup& group, const AcceleratorOptions& options = {});

  /// What it was made with.
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

  // ---- Order among processes
  // --------------------------------------------------------------------------------------

  /// Returns when every process has called it; throws TimeoutError naming who did not come within the
  /// timeout. *Collective*.
  void wait_for_everyone() const;

  /// `const auto guard = accelerator.main_process_first();`: rank 0 runs the scope first, then the others do.
  /// See MainProcessFirst for waiting and failing. *Collective*.
  MainProcessFirst main_process_first() const;
  /// Likewise on each node: local rank 0 first, then that node's others. *Collective* on each node.
  MainProcessFirst local_main_process_first() const;

  /// Runs `action` on rank 0 first, then on the others, and returns what it returned here. An exception on
  /// rank 0 reaches every process with its text. *Collective*.
  template <class Action>
  auto main_process_first(Action&& action) const {
    return in_order(main_process_first(), std::forward<Action>(action));
  }
  template <class Action>
  auto local_main_process_first(Action&& action) const {
    return in_order(local_main_process_first(), std::forward<Action>(action));
  }

  /// Writes the parts, one after the other, and a line end to standard output: once for the job. *Local*.
  template <class... Parts>
  void print(const Parts&... parts) const {
    if (!is_main_process()) return;
    std::ostringstream line;
    (line << ... << parts) << '\n';
    write_line(line.str());
  }

  // ---- The training loop
  // ------------------------------------------------------------------------------------------

  /// Makes each object ready for this job and returns them in the same order (one object, or a tuple):
  /// a module moves to the device and becomes an AcceleratedModel, which wraps it in a
  /// DistributedDataParallel, or with AcceleratorOptions::fsdp_plugin in a FullyShardedDataParallel; an
  /// optimizer, which must be a variable of the program's, becomes an AcceleratedOptimizer on it; a scheduler
  /// (optim::LrScheduler, optim::ReduceLrOnPlateau), likewise, an AcceleratedScheduler; a DataLoader becomes
  /// this rank's share of it, divided as AcceleratorOptions::dataloader_config says, with its batches on the
  /// device. Models and optimizers that are prepared already come back as they are; a loader is prepared
  /// once, and its sampler must give all samples (UsageError). What is prepared belongs to save_state() from
  /// now on. *Collective* when a module is among them.
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

  /// The rows of `tensor` of all processes, in rank order, at every process. The number of rows (dimension 0)
  /// may differ; a scalar counts as one row. *Collective*. Throws CommunicationError, on every rank and
  /// before any data moves, when dtypes or other dimensions differ; the text lists each rank's.
  at::Tensor gather(const at::Tensor& tensor) const;

  /// `tensor` combined over all processes, as a new tensor. Shapes are compared first, as in gather.
  /// *Collective*.
  at::Tensor reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::sum) const;

  /// A model that is not trained here: it moves to the device, and nothing is sent. *Local*.
  template <class Model>
  Model prepare_for_evaluation(Model model) const {
    parallel::module_of(model).to(device());
    parallel::module_of(model).eval();
    return model;
  }

  /// The same for every tensor of a collection (a Batch, a vector, a map, a pair or a tuple of such).
  /// *Collective*: the collections must be built alike on every rank.
  template <class Collection>
  Collection gather(const Collection& tensors) const {
    return each_of(tensors, [this](const at::Tensor& tensor) { return gather(tensor); });
  }
  /// A Batch with texts, `indices` and `valid` gathered too.
  Batch gather(const Batch& batch) const;

  /// What belongs to samples that count, of all processes: rows of `tensors`, which were computed from
  /// `batch`, without those of samples that were only repeated to make batches even (see Batch::valid). Over
  /// an epoch each sample is there exactly once, whatever the batch sizes, the numbers of ranks and batches,
  /// and where the epoch began. A tensor may have several rows for each sample, one after the other. With
  /// Sharding::by_batch the rows are in the order of the loader's sampler; otherwise the gathered indices say
  /// whose they are:
  ///
  ///     auto [logits, labels, indices] = accelerator.gather_for_metrics(
  ///         std::tuple{model(batch["x"]), batch["y"], at::tensor(batch.indices)}, batch);
  ///
  /// *Collective*. Throws UsageError where the rows are no multiple of the batch's samples.
  template <class Collection>
  Collection gather_for_metrics(const Collection& tensors, const Batch& batch) const {
    return each_of(tensors, [&](const at::Tensor& tensor) { return gather_for_metrics(tensor, batch); });
  }
  at::Tensor gather_for_metrics(const at::Tensor& tensor, const Batch& batch) const;
  /// The batch itself, with its texts and `indices`; all rows are valid.
  Batch gather_for_metrics(const Batch& batch) const;
  /// Only the batch knows which rows count.
  template <class Collection>
  void gather_for_metrics(const Collection& /*tensors*/) const {
    static_assert(sizeof(Collection) == 0,
                  "gather_for_metrics(tensors, batch) needs the batch that the tensors were computed from");
  }

  /// The objects of all processes, in rank order, at every process; each may bring any number. *Collective*.
  std::vector<std::string> gather_object(const std::vector<std::string>& objects) const;
  std::vector<nlohmann::json> gather_object(const std::vector<nlohmann::json>& objects) const;

  /// `tensor` filled up to the largest size of dimension `dim` that any process has, with `pad_index` behind
  /// the values, or before them with `pad_first`. A negative `dim` counts from the last one; a tensor without
  /// that dimension is returned as it is. *Collective*. Throws CommunicationError, listing each rank's, when
  /// dtypes or numbers of dimensions differ.
  at::Tensor pad_across_processes(const at::Tensor& tensor, std::int64_t dim = 0, double pad_index = 0,
                                  bool pad_first = false) const;
  /// Likewise for every tensor of a collection.
  template <class Collection>
  Collection pad_across_processes(const Collection& tensors, std::int64_t dim = 0, double pad_index = 0,
                                  bool pad_first = false) const {
    return each_of(tensors, [&](const at::Tensor& tensor) {
      return pad_across_processes(tensor, dim, pad_index, pad_first);
    });
  }

  /// The values that process `from` has, as new tensors. Shapes are compared first, as in reduce.
  /// *Collective*.
  at::Tensor broadcast(const at::Tensor& tensor, int from = 0) const;
  template <class Collection>
  Collection broadcast(const Collection& tensors, int from = 0) const {
    return each_of(tensors, [&](const at::Tensor& tensor) { return broadcast(tensor, from); });
  }

  /// This process's share of `inputs` (a vector, a tensor or a Batch by its rows, a map or a tuple of such of
  /// equal lengths): contiguous blocks in rank order, see SplitRange. With `apply_padding` every process gets
  /// equally many, so that results can be gathered; of n inputs the first n gathered results are the real
  /// ones where all but the last process are full, else each process drops its repetition first. *Local*.
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

  /// Passes over the next `num_batches` batches of this process in the loader's present epoch, without
  /// reading them (those of a stream are read); the epochs after it are whole. Returns the loader. *Local*,
  /// but of streams as its passes are; every rank must skip as many. Not needed after load_state(), which puts loaders where they were. Throws UsageError for more than
  /// are left.
  static DataLoader& skip_first_batches(DataLoader& loader, std::int64_t num_batches) {
    loader.skip_batches(num_batches);
    return loader;
  }

  /// Runs `body`, a loop over this rank's batches, where ranks may have different numbers of them: see
  /// DistributedDataParallel::join. With `even_batches` all prepared loaders divide so while it runs, as if
  /// DataLoaderConfiguration::even_batches had this value, and as before afterwards; no pass may be under
  /// way. *Collective*.
  template <class Model, class Body>
  void join_uneven_inputs(Model& model, Body&& body, const JoinOptions& options = {},
                          std::optional<bool> even_batches = std::nullopt) {
    const auto meanwhile = even_batches_as(even_batches);
    model.join(std::forward<Body>(body), options);
  }

  // ---- Models
  // -----------------------------------------------------------------------------------------------------

  /// The module inside a prepared model; a module that is not wrapped is returned as it is. *Local*.
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

  /// The parameters and buffers of a model, prepared or not, under the module's own names. They are the
  /// model's tensors, not copies. *Local*. Of a fully sharded model rank 0 gets copies of the whole tensors
  /// on the CPU, and the other ranks nothing, as in Accelerate: *Collective*.
  template <class Model>
  TensorMap get_state_dict(Model& model) const {
    TensorMap tensors;
    for (const auto& entry : whole_state(state_of(unwrap_model(model))))
      tensors.emplace(entry.name, entry.tensor.detach());
    return tensors;
  }

  /// Rank 0 writes the tensors as a safetensors file, atomically; the folder must exist. When it returns, the
  /// file is there for every process; when writing fails, every process throws. *Collective*.
  void save(const TensorMap& tensors, const std::filesystem::path& path) const;

  /// Rank 0 writes the model's parameters and buffers to `folder`/model.safetensors, likewise; a model of
  /// more than `max_shard_bytes` in parts with an index: see write_model. Of a fully sharded model no rank
  /// holds more than one whole tensor. *Collective*.
  template <class Model>
  void save_model(Model& model, const std::filesystem::path& folder,
                  std::uint64_t max_shard_bytes = kMaxShardBytes) const {
    save_state_of_model(state_of(unwrap_model(model)), folder, max_shard_bytes);
  }

  /// Rank 0 reads the file (or the folder that save_model wrote) into the model, and the other ranks get the
  /// values from it: the file need not be visible to them. *Collective*. Throws DataError (RemoteError on the
  /// other ranks) when the file does not fit the model; then nothing has changed. A fully sharded model is
  /// read tensor by tensor: an error of the disk meanwhile leaves it half loaded, and says so.
  template <class Model>
  void load_model(Model& model, const std::filesystem::path& path) const {
    load_state_of_model(state_of(unwrap_model(model)), path);
  }

  /// Until the result goes away, models that this thread makes are divided as they are made, where
  /// AcceleratorOptions::fsdp_plugin is set: see ShardedInit. *Local*; what is made meanwhile is
  /// *Collective*.
  std::shared_ptr<void> sharded_init() const;

  /// Until the result goes away the parameters of a prepared model that is fully sharded are whole, for an
  /// evaluation on numbers of batches that differ from rank to rank, or to look at them: see
  /// FullyShardedDataParallel::full_parameters. For other models nothing. *Collective*.
  template <class Model>
  std::shared_ptr<void> full_parameters(Model& model) const {
    return full_parameters_of(state_of(unwrap_model(model)));
  }

  // ---- Checkpoints and stopping
  // -----------------------------------------------------------------------------------

  /// Adds an object of the program's own to what save_state() and load_state() keep. It must live for as long
  /// as these are called. `name` becomes part of a file's name. *Local*, but every rank must do the same.
  /// Throws UsageError for a name that is taken or has other signs than letters, digits, '_', '-' and '.'.
  void register_for_checkpointing(const std::string& name, Checkpointable& object);

  /// Has `hook` called by every save_state() with the checkpoint's path, on every rank and before anything is
  /// taken or written; and by every load_state() and load_latest_state() that found a checkpoint, before
  /// anything is read. Hooks are called in the order of registration; what one throws ends the call. *Local*,
  /// but every rank must do the same where the hook is collective.
  StateHookHandle register_save_state_pre_hook(StateHook hook);
  StateHookHandle register_load_state_pre_hook(StateHook hook);

  /// Forgets everything that was prepared and registered, and gives a GPU's memory that LibTorch keeps for
  /// later back to the driver: for programs that train one model after another. *Local*.
  void free_memory();

  /// Accelerate's profile(): records steps from now on; call step() on it after each.
  ///
  ///     auto profiler = accelerator.profile({.schedule_option = {.skip_first = 10}});
  ///
  /// *Local*.
  Profiler profile(const ProfileOptions& options = {}) const { return Profiler(options, process_index()); }

  /// Writes a checkpoint: the values of all prepared models, the state of all prepared optimizers, the
  /// position of all prepared loaders, every rank's random state and the registered objects. `path` appears
  /// whole, on the disk and with checksums, or not at all; see docs/checkpoints.md for its files. Rank 0
  /// writes, so only its file system matters. Of `info` the step and where the run began are the caller's;
  /// the rest is filled in. Parameters without a gradient, buffers that differ between the ranks and
  /// optimizers that do are kept as rank 0 has them. *Collective*. When writing fails, rank 0 throws Error
  /// with the system's reason and the others RemoteError; nothing has changed on the disk then.
  void save_state(const std::filesystem::path& path, const CheckpointInfo& info = {},
                  const SaveStateOptions& options = {}) const;

  /// Returns when no checkpoint is being written any more. *Collective*. Throws what writing it threw (on
  /// rank 0; RemoteError on the others). The Accelerator's end waits too, and leaves an error on standard
  /// error.
  void wait_for_save() const;

  /// Goes back to where save_state() was called: with the same number of ranks on CPUs, everything that
  /// follows has the same bits as without the interruption. Objects must be prepared and registered as they
  /// were then, and in the same order. With another number of ranks, weights and optimizers are the same, a
  /// loader goes on after the samples that were consumed (see DataLoader::load_state), and random numbers
  /// begin anew. Rank 0 reads; the others get everything from it.
  /// *Collective*. Throws DataError (RemoteError on the other ranks) when a byte is missing or changed or the
  /// checkpoint does not fit the program, UsageError when a position does not fit; models, optimizers and
  /// objects are as they were then.
  Checkpoint load_state(const std::filesystem::path& path);

  /// The same with the newest checkpoint `checkpoint-<step>` in `folder` that is whole, and that `fits` wants
  /// (asked on rank 0; all, without one). Without any, nothing is loaded and `checkpoint` is empty. Every
  /// rank gets the same answer. *Collective*.
  LatestCheckpoint load_latest_state(const std::filesystem::path& folder,
                                     const std::function<bool(const CheckpointInfo&)>& fits = {});

  /// This rank wishes the job to stop. *Local*.
  void request_stop();

  /// Whether some rank wishes to stop: by request_stop(), or by a signal that a StopSignals object of the
  /// program listens to. All ranks get the same answer in the same call, one call after the wish; ask once a
  /// step. The exchange runs during the step, so asking hardly costs time. *Collective*. Throws
  /// CommunicationError when a peer is lost.
  bool should_stop();

 private:
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

  /// Comes back as it is.
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
      add_optimizer(object);
      return AcceleratedOptimizer(object, gradients());
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
      add_model([module = Type(object)]() mutable { return state_of(module); }, *model, model);
      return AcceleratedModel<Type>(*model);
    }
  }

  template <class Module>
  AcceleratedModel<Module> wrapped(const Module& module) {
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

  parallel::ShardGroups shard_groups() const;
  MixedPrecisionPolicy mixed_precision_policy() const;
  /// AcceleratorOptions::channels_last.
  void lay_out(const std::vector<NamedTensor>& parameters) const;
  DataLoader shard(const DataLoader& loader);
  /// Until the result goes away.
  std::shared_ptr<void> even_batches_as(std::optional<bool> even_batches);
  void add_model(std::function<std::vector<NamedTensor>()> tensors, WrappedModel model,
                 std::shared_ptr<void> owner);
  std::shared_ptr<void> full_parameters_of(const std::vector<NamedTensor>& state) const;
  /// On rank 0 whole, on the others nothing, where some of it is fully sharded; else as it is.
  std::vector<NamedTensor> whole_state(const std::vector<NamedTensor>& state) const;
  void save_state_of_model(const std::vector<NamedTensor>& state, const std::filesystem::path& folder,
                           std::uint64_t max_shard_bytes) const;
  void load_state_of_model(const std::vector<NamedTensor>& state, const std::filesystem::path& path) const;
  void add_optimizer(torch::optim::Optimizer& optimizer);
  void add_scheduler(optim::Scheduler& scheduler);
  LatestCheckpoint find_and_load(const std::function<LatestCheckpoint()>& find);
  static void write_line(const std::string& line);

  std::shared_ptr<State> state_;
};

}  // namespace lockstep
