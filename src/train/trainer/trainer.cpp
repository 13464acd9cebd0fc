#include "lockstep/train/trainer.hpp"

#include <algorithm>

#include "lockstep/core/error.hpp"
#include "train/rules/fsdp_config.hpp"
#include "train/trainer/trainer_impl.hpp"
#include "train/trainer/training_run.hpp"

namespace lockstep {
namespace {

MixedPrecision precision_of(const TrainingArguments& args) {
  if (args.bf16) return MixedPrecision::bf16;
  return args.fp16 ? MixedPrecision::fp16 : MixedPrecision::no;
}

TrainingArguments checked(TrainingArguments args) {
  check_training_arguments(args);
  return args;
}

}  // namespace

AcceleratorOptions accelerator_options(const TrainingArguments& args) {
  return {.mixed_precision = precision_of(args),
          .gradient_accumulation_steps = args.gradient_accumulation_steps,
          .device = args.device,
          .backend = comm_backend_from(args.ddp_backend),
          .timeout = std::chrono::seconds(args.ddp_timeout),
          .deterministic = args.full_determinism,
          .tf32 = args.tf32,
          .fused_kernels = args.fused_kernels == "off" ? FusedKernels::off : FusedKernels::automatic,
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

Trainer::Trainer(TrainingArguments args, TrainerComponents parts)
    : Trainer(Accelerator(accelerator_options(checked(args))), args, std::move(parts)) {}

Trainer::Trainer(const Accelerator& accelerator, TrainingArguments args, TrainerComponents parts)
    : impl_(std::make_unique<Impl>(accelerator, checked(std::move(args)), std::move(parts))) {
  impl_->call(*this, &TrainerCallback::on_init_end);
}

Trainer::~Trainer() = default;

TrainOutput Trainer::train() { return TrainingRun(*this, *impl_).run(); }

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
