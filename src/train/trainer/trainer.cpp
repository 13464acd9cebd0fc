#include "lockstep/train/trainer.hpp"

#include <ATen/Context.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "../rules/fsdp_config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/parallel/sharded_init.hpp"
#include "lockstep/train/callbacks.hpp"
#include "trainer_impl.hpp"

namespace lockstep {
namespace {

LogLevel level_from(const std::string& name) {
  if (name == "debug") return LogLevel::debug;
  if (name == "warning") return LogLevel::warning;
  return name == "error" ? LogLevel::error : LogLevel::info;
}

MixedPrecision precision_of(const TrainingArguments& args) {
  if (args.bf16) return MixedPrecision::bf16;
  return args.fp16 ? MixedPrecision::fp16 : MixedPrecision::no;
}

/// Whether this rank writes the messages of its node or of the job.
bool speaks(const Accelerator& accelerator, const TrainingArguments& args) {
  return args.log_on_each_node ? accelerator.is_local_main_process() : accelerator.is_main_process();
}

void allow_tf32(bool on) {
  at::globalContext().setAllowTF32CuBLAS(on);
  at::globalContext().setAllowTF32CuDNN(on);
}

/// Number of elements of the parameters, each counted once under its first name. Embeddings are left out,
/// because they only look up.
std::int64_t numbers_that_multiply(ModelAdapter& model) {
  std::set<std::string> looked_up;
  for (const auto& name : model.embeddings()) looked_up.insert(name + ".weight");
  std::set<const void*> seen;
  std::int64_t count = 0;
  for (const auto& entry : model.parameters()) {
    const bool is_new = seen.insert(entry.tensor.unsafeGetTensorImpl()).second;
    if (is_new && !looked_up.contains(entry.name))
      count += c10::multiply_integers(parallel::initial_sizes(entry.tensor));
  }
  return count;
}

TrainingArguments checked(TrainingArguments args) {
  check_training_arguments(args);
  return args;
}

}  // namespace

double rounded(double value, int decimals) {
  const double scale = std::pow(10.0, decimals);
  return std::round(value * scale) / scale;
}

void add_speed(LogValues& values, const std::string& prefix, double seconds, double samples, double steps) {
  values.emplace_back(prefix + "_runtime", rounded(seconds, 4));
  if (seconds <= 0) return;
  values.emplace_back(prefix + "_samples_per_second", rounded(samples / seconds, 3));
  values.emplace_back(prefix + "_steps_per_second", rounded(steps / seconds, 3));
}

AcceleratorOptions accelerator_options(const TrainingArguments& args) {
  return {.mixed_precision = precision_of(args),
          .gradient_accumulation_steps = args.gradient_accumulation_steps,
          .device = args.device,
          .backend = comm_backend_from(args.ddp_backend),
          .timeout = std::chrono::seconds(args.ddp_timeout),
          .deterministic = args.full_determinism,
          .tf32 = args.tf32,
          .ddp = {.bucket_cap_mb = args.ddp_bucket_cap_mb,
                  .broadcast_buffers = args.ddp_broadcast_buffers,
                  .find_unused_parameters = args.ddp_find_unused_parameters,
                  .static_graph = args.ddp_static_graph,
                  .gradient_as_bucket_view = args.ddp_gradient_as_bucket_view},
          .fsdp_plugin = fsdp_plugin(args),
          .gradient_accumulation = {.global_batch_size = args.global_batch_size,
                                    .weights_of_all_ranks = args.average_tokens_across_devices},
          .dataloader_config = {.split_batches = args.split_batches,
                                .sharding = Sharding::by_batch,
                                .data_seed = args.data_seed.value_or(args.seed),
                                .non_blocking = args.non_blocking}};
}

Trainer::Impl::Impl(const Accelerator& the_accelerator, TrainingArguments the_args,
                    TrainerComponents the_parts)
    : accelerator(the_accelerator),
      args(std::move(the_args)),
      parts(std::move(the_parts)),
      logger(accelerator, "trainer",
             {.level = level_from(speaks(accelerator, args) ? args.log_level : args.log_level_replica)}),
      scope(accelerator) {
  if (!parts.model) throw UsageError("Trainer: there is no model: set TrainerComponents::model");
  if (args.tf32) allow_tf32(*args.tf32);
  if (args.gradient_checkpointing) parts.model->set_activation_checkpointing();
  if (!args.fsdp.empty() && !accelerator.options().fsdp_plugin) {
    throw UsageError(
        "Trainer: fsdp is '" + args.fsdp +
        "', but the Accelerator has no fsdp_plugin: make it with accelerator_options(args), or give none");
  }
  accelerator.set_seed(args.seed, /*device_specific=*/true, args.full_determinism);
  callbacks.push_back(std::make_shared<DefaultFlowCallback>());
  callbacks.push_back(std::make_shared<TrackerCallback>());
  callbacks.insert(callbacks.end(), parts.callbacks.begin(), parts.callbacks.end());
  if (args.disable_tqdm) {
    callbacks.push_back(std::make_shared<PrinterCallback>());
  } else {
    callbacks.push_back(std::make_shared<ProgressCallback>());
  }
  state.is_world_process_zero = accelerator.is_main_process();
  state.is_local_process_zero = accelerator.is_local_main_process();
}

/// Called before the parameters are sharded; counts them once.
void Trainer::Impl::count_parameters() {
  if (!multiplied) multiplied = numbers_that_multiply(*parts.model);
}

std::map<std::string, std::vector<TrainerCallback*>> Trainer::Impl::stateful_callbacks() const {
  std::map<std::string, std::vector<TrainerCallback*>> result;
  for (const auto& callback : callbacks) {
    if (!callback->name().empty()) result[callback->name()].push_back(callback.get());
  }
  return result;
}

void Trainer::Impl::call(Trainer& trainer, Event event, const LogValues& values) {
  CallbackContext context{args, state, control, trainer, values};
  for (const auto& callback : callbacks) ((*callback).*event)(context);
}

Trainer::Trainer(TrainingArguments args, TrainerComponents parts)
    : Trainer(Accelerator(accelerator_options(checked(args))), args, std::move(parts)) {}

Trainer::Trainer(const Accelerator& accelerator, TrainingArguments args, TrainerComponents parts)
    : impl_(std::make_unique<Impl>(accelerator, checked(std::move(args)), std::move(parts))) {
  impl_->call(*this, &TrainerCallback::on_init_end);
}

Trainer::~Trainer() = default;

void Trainer::log(LogValues values) {
  values.emplace_back("epoch", impl_->state.epoch);
  impl_->state.log_history.push_back({values, impl_->state.global_step});
  impl_->control.should_log = false;
  impl_->call(*this, &TrainerCallback::on_log, values);
}

void Trainer::save_model(const std::filesystem::path& folder) {
  impl_->parts.model->save(impl_->accelerator,
                           folder.empty() ? std::filesystem::path(impl_->args.output_dir) : folder);
}

void Trainer::add_callback(std::shared_ptr<TrainerCallback> callback) {
  if (!callback) throw UsageError("Trainer::add_callback: there is no callback");
  impl_->callbacks.push_back(std::move(callback));
}

void Trainer::remove_callback(const TrainerCallback& callback) {
  std::erase_if(impl_->callbacks, [&](const auto& entry) { return entry.get() == &callback; });
}

const std::vector<std::shared_ptr<TrainerCallback>>& Trainer::callbacks() const noexcept {
  return impl_->callbacks;
}
const Accelerator& Trainer::accelerator() const noexcept { return impl_->accelerator; }
const TrainingArguments& Trainer::args() const noexcept { return impl_->args; }
const TrainerState& Trainer::state() const noexcept { return impl_->state; }
TrainerControl& Trainer::control() noexcept { return impl_->control; }
ModelAdapter& Trainer::model() noexcept { return *impl_->parts.model; }
Accelerator& Trainer::accelerator() noexcept { return impl_->accelerator; }
torch::optim::Optimizer* Trainer::optimizer() noexcept { return impl_->optimizer.get(); }
optim::Scheduler* Trainer::scheduler() noexcept { return impl_->scheduler.get(); }
const Loss& Trainer::last_loss() const noexcept { return impl_->last_loss; }
const Logger& Trainer::logger() const noexcept { return impl_->logger; }

double Trainer::floating_point_operations(const Batch& batch) {
  if (!batch.contains("input_ids")) return 0;
  impl_->count_parameters();
  // One multiplication and one addition in forward, twice as many in backward.
  return 6.0 * static_cast<double>(batch["input_ids"].numel()) * static_cast<double>(*impl_->multiplied);
}

}  // namespace lockstep
