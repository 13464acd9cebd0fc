#include "lockstep/train/accelerator.hpp"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <fmt/core.h>
#include <torch/optim/lbfgs.h>

#include <algorithm>
#include <iostream>
#include <list>

#include "comm/group_observer.hpp"
#include "comm/set_up_record.hpp"
#include "core/cluster/scheduler_info.hpp"
#include "core/runtime/malloc_tuning.hpp"
#include "core/runtime/stop_signals.hpp"
#include "lockstep/comm/cuda.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/progress_bar.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"
#include "lockstep/optim/zero_redundancy_optimizer.hpp"
#include "lockstep/parallel/sharded_init.hpp"
#include "lockstep/train/determinism.hpp"
#include "lockstep/train/onednn_matmul.hpp"
#include "train/accelerator_state.hpp"
#include "train/accumulation_window.hpp"
#include "train/optimizer_lifetime.hpp"

namespace lockstep {
namespace {

/// Index of this rank's device among those that the process sees, if the options do not name one.
int device_number(const World& world, const std::string& device) {
  const bool open = device == "auto" || device == "cuda";
  if (!open || !world.own_devices || cuda_device_count() == 0) return world.local_rank;
  return world.local_rank % cuda_device_count();
}

/// Runs before the first large tensors are allocated.
const World& with_process_tuned(const World& world, const AcceleratorOptions& options) {
  if (options.tune_malloc) tune_malloc(process_environment());
  if (options.fsdp_plugin && options.channels_last)
    throw UsageError("channels_last: fsdp_plugin keeps weights contiguous in memory; leave one of them out");
  if (options.deterministic && options.cudnn_benchmark) {
    throw UsageError(
        "cudnn_benchmark chooses among algorithms by time, deterministic by their bits: leave one of the two "
        "out");
  }
  if (options.deterministic) use_deterministic_operations();
  if (options.cudnn_benchmark) at::globalContext().setBenchmarkCuDNN(true);
  if (options.fused_kernels == FusedKernels::off) set_fused_kernels(FusedKernels::off);
  if (options.tf32) {
    at::globalContext().setAllowTF32CuBLAS(*options.tf32);
    at::globalContext().setAllowTF32CuDNN(*options.tf32);
  }
  const at::Device device = choose_device(options.device, device_number(world, options.device));
  if (options.onednn_matmul && device.is_cpu()) use_onednn_matmul(process_environment());
  return world;
}

World world_or_warning() {
  const Environment environment = process_environment();
  if (const auto warning = lonely_process_warning(environment))
    std::cerr << "lockstep: warning: " + *warning + "\n" << std::flush;
  return World::from_environment(environment);
}

ProcessGroupOptions group_options(const World& world, const AcceleratorOptions& options) {
  return {.backend = options.backend,
          .device = choose_device(options.device, device_number(world, options.device)),
          .timeout = options.timeout,
          .join_timeout = options.join_timeout};
}

}  // namespace

Accelerator::Accelerator(const AcceleratorOptions& options) : Accelerator(world_or_warning(), options) {}

Accelerator::Accelerator(const World& world, const AcceleratorOptions& options)
    : Accelerator(world,
                  ProcessGroup::init(with_process_tuned(world, options), group_options(world, options)),
                  options) {}

Accelerator::Accelerator(const World& world, const ProcessGroup& group, const AcceleratorOptions& options)
    : ProcessExecution(world, group, options.barrier_warning),
      GradientAccumulation(group, options),
      Tracking(group.rank() == 0),
      state_(std::make_shared<State>(world, group, options)) {
  if (world.rank != group.rank() || world.world_size != group.size()) {
    throw UsageError(fmt::format("the world says rank {} of {}, but the process group says rank {} of {}",
                                 world.rank, world.world_size, group.rank(), group.size()));
  }
  comm::observe(group, state_);
}

const World& Accelerator::world() const noexcept { return state_->world; }
const ProcessGroup& Accelerator::process_group() const noexcept { return state_->group; }
const at::Device& Accelerator::device() const noexcept { return state_->group.device(); }
const AcceleratorOptions& Accelerator::options() const noexcept { return state_->options; }

// A process that replaces a lost one passes alone through what the others have done before their training.

void Accelerator::wait_for_everyone() const {
  if (comm::is_newcomer(state_->group)) return;
  const comm::LeftOutByNewcomers left_out(state_->group);
  state_->group.barrier();
}

MainProcessFirst Accelerator::main_process_first() const {
  if (comm::is_newcomer(state_->group)) return {state_->store, {.name = "main_process_first"}};
  return {state_->store,
          {.name = fmt::format("main_process_first #{}", ++state_->main_first),
           .rank = world().rank,
           .main_rank = 0,
           .members = world().world_size,
           .timeout = process_group().timeout()}};
}

MainProcessFirst Accelerator::local_main_process_first() const {
  if (comm::is_newcomer(state_->group)) return {state_->store, {.name = "local_main_process_first"}};
  return {state_->store,
          {.name = fmt::format("local_main_process_first #{} on node {}", ++state_->local_main_first,
                               world().group_rank),
           .rank = world().rank,
           .main_rank = world().local_main_rank(),
           .members = world().local_world_size,
           .timeout = process_group().timeout()}};
}

void Accelerator::write_line(const std::string& line) {
  ProgressBar::clear_line();
  std::cout << line << std::flush;
}

std::shared_ptr<void> Accelerator::even_batches_as(std::optional<bool> even_batches) {
  if (!even_batches) return nullptr;
  const auto loaders = state_->prepared.loaders();
  if (std::any_of(loaders.begin(), loaders.end(),
                  [](const auto& loader) { return loader.progress().has_value(); })) {
    throw UsageError(
        "join_uneven_inputs: even_batches cannot change while a prepared loader is in a pass. Begin the loop "
        "inside of join_uneven_inputs().");
  }
  std::vector<std::pair<DataLoader::Position, bool>> before;
  for (const auto& loader : loaders) {
    before.emplace_back(loader, loader.even_batches());
    loader.set_even_batches(*even_batches);
  }
  return std::shared_ptr<void>(nullptr, [before = std::move(before)](std::nullptr_t) {
    for (const auto& [loader, as_it_was] : before) loader.set_even_batches(as_it_was);
  });
}

bool Accelerator::is_frozen(const std::vector<NamedTensor>& parameters) {
  return std::none_of(parameters.begin(), parameters.end(),
                      [](const NamedTensor& entry) { return entry.tensor.requires_grad(); });
}

parallel::ShardGroups Accelerator::shard_groups() const {
  if (!options().fsdp_plugin->hybrid_shard) return process_group();
  return ParallelContext(process_group(), {.shard_size = world().local_world_size});
}

std::shared_ptr<void> Accelerator::sharded_init() const {
  return options().fsdp_plugin ? std::make_shared<ShardedInit>(shard_groups()) : nullptr;
}

std::shared_ptr<void> Accelerator::full_parameters_of(const std::vector<NamedTensor>& state) const {
  auto all = std::make_shared<std::list<FullyShardedDataParallelBase::FullParameters>>();
  for (auto* const model : train::sharded_among(state_->prepared.sharded_models(), state))
    all->emplace_back(*model);
  return all;
}

MixedPrecisionPolicy Accelerator::mixed_precision_policy() const {
  const auto& precision = options().fsdp_plugin->mixed_precision_policy;
  if (!precision || *precision == MixedPrecision::no) return {};
  if (*precision == MixedPrecision::fp16) {
    throw UsageError(
        "fsdp_plugin: a mixed_precision_policy of fp16 would need its losses scaled: use bf16, or "
        "mixed_precision");
  }
  constexpr auto dtype = at::kBFloat16;
  return {.param_dtype = dtype, .reduce_dtype = dtype, .output_dtype = at::kFloat};
}

void Accelerator::lay_out(const std::vector<NamedTensor>& parameters) const {
  constexpr std::int64_t kDimensions = 4;
  if (!options().channels_last) return;
  const at::NoGradGuard no_grad;
  for (const auto& entry : parameters) {
    if (entry.tensor.dim() == kDimensions)
      entry.tensor.set_data(entry.tensor.contiguous(at::MemoryFormat::ChannelsLast));
  }
}

DataLoader Accelerator::shard(const DataLoader& loader) {
  const auto& config = state_->options.dataloader_config;
  auto options = loader.options();
  options.seed = config.data_seed.value_or(options.seed);
  options.non_blocking = options.non_blocking || config.non_blocking;
  DataLoader part = loader.with_options(std::move(options))
                        .shard(process_group(), device(),
                               {.sharding = config.sharding,
                                .split_batches = config.split_batches,
                                .even_batches = config.even_batches,
                                .dispatch_batches = config.dispatch_batches});
  gradients()->add_loader(part.position_handle(), part.batch_size());
  state_->prepared.add_loader(part.position_handle());
  return part;
}

void Accelerator::add_model(ModelContents contents, WrappedModel model, std::shared_ptr<void> owner) {
  gradients()->add_model(model, owner);
  auto frozen = std::make_shared<train::FrozenParameters>(contents.parameters(), model.fsdp());
  state_->prepared.add_model({std::move(contents), model, std::move(owner), std::move(frozen)});
}

std::shared_ptr<const void> Accelerator::add_optimizer(torch::optim::Optimizer& optimizer) {
  if (options().fsdp_plugin && dynamic_cast<optim::ZeroRedundancyOptimizer*>(&optimizer) != nullptr)
    throw UsageError("ZeroRedundancyOptimizer: fsdp_plugin already shards the optimizer state");
  if (options().fsdp_plugin && dynamic_cast<torch::optim::LBFGS*>(&optimizer) != nullptr) {
    throw UsageError(
        "LBFGS: fsdp_plugin gives each rank a part of the parameters, and it has one state for all of them: "
        "use "
        "an optimizer that treats each element by itself, as AdamW or SGD");
  }
  auto mark = std::make_shared<char>();
  const auto alive = train::watch(optimizer, mark);
  gradients()->add_optimizer(optimizer, alive);
  state_->prepared.add_optimizer(optimizer, alive);
  return mark;
}

void Accelerator::add_scheduler(optim::Scheduler& scheduler) { state_->prepared.add_scheduler(scheduler); }

void Accelerator::free_memory() {
  gradients()->clear();
  state_->prepared.clear();
  if (device().is_cuda()) at::getDeviceAllocator(at::kCUDA)->emptyCache();
}

void Accelerator::request_stop() { state_->stop_requested = true; }

bool Accelerator::should_stop() {
  return state_->preemption.ask(state_->stop_requested || StopSignals::received() != 0);
}

}  // namespace lockstep
