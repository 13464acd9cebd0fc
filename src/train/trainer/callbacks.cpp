#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <cmath>
#include <filesystem>
#include <utility>

#include "lockstep/comm/cuda.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/train/accelerator.hpp"
#include "lockstep/train/callbacks.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep {
namespace {

std::string grouped(const std::string& name) {
  for (const std::string group : {"eval", "test"}) {
    if (name.starts_with(group + "_")) return group + "/" + name.substr(group.size() + 1);
  }
  return "train/" + name;
}

/// The arguments that are logged as the run's hyper-parameters.
HyperParameters hyper_parameters(const TrainingArguments& args) {
  return {{"learning_rate", args.learning_rate},
          {"num_train_epochs", args.num_train_epochs},
          {"per_device_train_batch_size", args.per_device_train_batch_size},
          {"gradient_accumulation_steps", args.gradient_accumulation_steps},
          {"weight_decay", args.weight_decay},
          {"optim", args.optim},
          {"lr_scheduler_type", args.lr_scheduler_type},
          {"seed", static_cast<std::int64_t>(args.seed)}};
}

void print_log(CallbackContext& event) {
  std::ostringstream line;
  for (const auto& [name, value] : event.values)
    line << (line.tellp() == 0 ? "" : ", ") << "'" << name << "': " << value;
  event.trainer.accelerator().print("{", line.str(), "}");
}

}  // namespace

void TrackerCallback::open(CallbackContext& event, bool for_training) {
  const auto& args = event.args;
  auto trackers = args.report_to;
  std::erase(trackers, "none");
  if (trackers.empty()) return;
  const std::filesystem::path folder = args.logging_dir.empty()
                                           ? std::filesystem::path(args.output_dir) / "runs"
                                           : std::filesystem::path(args.logging_dir);
  // Drops the steps of a job that was killed before its first checkpoint. Later steps are dropped when a
  // checkpoint is loaded.
  const bool drops = for_training && args.resume_from_checkpoint == "auto" && event.state.global_step == 0;
  trackers_ = event.trainer.accelerator().init_run_trackers(
      {.log_with = std::move(trackers),
       .folder = args.run_name.empty() ? folder : folder / args.run_name,
       .resume_at = drops ? std::optional<std::int64_t>(0) : std::nullopt},
      for_training ? hyper_parameters(args) : HyperParameters());
}

void TrackerCallback::on_prepare(CallbackContext& event) { on_train_end(event); }

void TrackerCallback::on_train_begin(CallbackContext& event) { open(event, /*for_training=*/true); }

void TrackerCallback::on_log(CallbackContext& event) {
  if (!is_open()) open(event, /*for_training=*/false);
  LogValues values;
  for (const auto& [name, value] : event.values) values.emplace_back(grouped(name), value);
  event.trainer.accelerator().log(values, event.state.global_step);
}

void TrackerCallback::on_train_end(CallbackContext& /*event*/) {
  if (trackers_) trackers_->close();
}

void PrinterCallback::on_log(CallbackContext& event) { print_log(event); }

void ProgressCallback::on_train_begin(CallbackContext& event) {
  const bool known = !(event.args.max_duration && event.args.max_duration->is_time());
  bar_.emplace(event.trainer.accelerator().world(),
               ProgressBarOptions{.description = "training",
                                  .total = known ? static_cast<std::uint64_t>(event.state.max_steps) : 0,
                                  .initial = static_cast<std::uint64_t>(event.state.global_step)});
  begin_ = std::chrono::steady_clock::now();
  first_sample_ = event.state.num_samples_seen;
}

void ProgressCallback::on_step_end(CallbackContext& /*event*/) { bar_->advance(); }

void ProgressCallback::on_log(CallbackContext& event) {
  const LogEntry entry{event.values};
  if (bar_) {
    if (const auto loss = entry.find("loss")) bar_->set_metric("loss", *loss);
    if (const auto rate = entry.find("learning_rate")) bar_->set_metric("lr", *rate);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_;
    const auto samples = static_cast<double>(event.state.num_samples_seen - first_sample_);
    // After loss and learning rate, which a narrow terminal shows first.
    if (entry.find("loss") && seconds.count() > 0) bar_->set_metric("samples/s", samples / seconds.count());
    bar_->clear();
  }
  print_log(event);
}

void ProgressCallback::on_train_end(CallbackContext& /*event*/) { bar_.reset(); }

namespace {

constexpr double kMebi = 1024.0 * 1024.0;

double peak_resident_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024.0;  // ru_maxrss is in KiB on Linux.
}

std::string key_of(std::size_t index) { return "mean." + std::to_string(index); }

}  // namespace

void ProfilerCallback::on_train_begin(CallbackContext& event) {
  ProfileOptions options = options_;
  options.output_trace_dir = std::filesystem::path(event.args.output_dir) / options.output_trace_dir;
  profiler_ = std::make_unique<Profiler>(options, event.trainer.accelerator().process_index());
}

void ProfilerCallback::on_step_end(CallbackContext&) {
  if (profiler_) profiler_->step();
}

void ProfilerCallback::on_train_end(CallbackContext&) {
  if (profiler_) profiler_->stop();
  profiler_.reset();
}

void NanGuardCallback::add(const CallbackContext& event) {
  const at::NoGradGuard no_grad;
  const at::Tensor loss = event.trainer.last_loss().value.to(at::kDouble).reshape({1});
  sum_ = sum_.defined() ? sum_ + loss : loss;
}

void NanGuardCallback::on_substep_end(CallbackContext& event) { add(event); }

void NanGuardCallback::on_pre_optimizer_step(CallbackContext& event) {
  add(event);
  const at::Tensor sum = std::exchange(sum_, at::Tensor());
  const std::int64_t step = event.state.global_step + 1;
  if (step % every_ != 0) return;
  const at::Tensor all = event.trainer.accelerator().gather(sum).cpu();
  std::vector<std::int64_t> ranks;
  for (std::int64_t rank = 0; rank < all.numel(); ++rank) {
    if (!std::isfinite(all[rank].item<double>())) ranks.push_back(rank);
  }
  if (ranks.empty()) return;
  throw Error(
      fmt::format("step {}: the loss of rank(s) {} is not finite. The weights are those of the step before. "
                  "Look at the samples of this step, try a smaller learning_rate, or max_grad_norm",
                  step, fmt::join(ranks, ", ")));
}

namespace {

double peak_of(const Accelerator& accelerator) {
  if (!accelerator.device().is_cuda()) return 0;
  return peak_flops(cuda_device_name(accelerator.device().index()), accelerator.mixed_precision(),
                    at::globalContext().allowTF32CuBLAS());
}

}  // namespace

void ThroughputCallback::on_train_begin(CallbackContext& event) {
  if (options_.peak_flops_per_device == 0)
    options_.peak_flops_per_device = peak_of(event.trainer.accelerator());
  since_ = std::chrono::steady_clock::now();
  step_ = event.state.global_step;
  samples_ = event.state.num_samples_seen;
  flops_ = event.state.total_flos;
}

void ThroughputCallback::on_log(CallbackContext& event) {
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - since_).count();
  const auto steps = static_cast<double>(event.state.global_step - step_);
  if (steps <= 0 || seconds <= 0) return;
  const double samples = static_cast<double>(event.state.num_samples_seen - samples_) / seconds;
  LogValues values{{"throughput/samples_per_second", samples},
                   {"throughput/steps_per_second", steps / seconds}};
  if (options_.tokens_per_sample > 0)
    values.emplace_back("throughput/tokens_per_second", samples * options_.tokens_per_sample);
  if (options_.peak_flops_per_device > 0) {
    const double done = (event.state.total_flos - flops_) / event.trainer.accelerator().num_processes();
    values.emplace_back("throughput/mfu", done / seconds / options_.peak_flops_per_device);
  }
  event.trainer.accelerator().log(values, event.state.global_step);
  on_train_begin(event);
}

void MemoryCallback::on_log(CallbackContext& event) {
  if (std::exchange(last_step_, event.state.global_step) == event.state.global_step) return;
  const auto& accelerator = event.trainer.accelerator();
  LogValues values{{"memory/peak_rss_mib", peak_resident_mib()}};
  if (accelerator.device().is_cuda()) {
    const auto stats = at::getDeviceAllocator(at::kCUDA)->getDeviceStats(accelerator.device().index());
    const auto total = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    values.emplace_back("memory/peak_allocated_mib",
                        static_cast<double>(stats.allocated_bytes[total].peak) / kMebi);
  }
  accelerator.log(values, event.state.global_step);
}

void LearningRateMonitor::on_log(CallbackContext& event) {
  const auto* const optimizer = event.trainer.optimizer();
  if (optimizer == nullptr) return;
  // Evaluations and totals of a run are logged at steps that were logged already.
  if (std::exchange(last_step_, event.state.global_step) == event.state.global_step) return;
  LogValues values;
  for (const auto& group : optimizer->param_groups())
    values.emplace_back("lr/group_" + std::to_string(values.size()), group.options().get_lr());
  event.trainer.accelerator().log(values, event.state.global_step);
}

EmaCallback::EmaCallback(double decay, bool apply_at_end) : decay_(decay), apply_at_end_(apply_at_end) {
  if (!(decay > 0 && decay < 1))
    throw UsageError(fmt::format("EmaCallback: the decay must be between 0 and 1, not {}", decay));
}

void EmaCallback::on_prepare(CallbackContext& event) {
  if (event.trainer.accelerator().options().fsdp_plugin)
    throw UsageError(
        "EmaCallback: with fsdp the weights are sharded over the ranks, and their moving average is not "
        "supported");
  if (apply_at_end_ && event.args.load_best_model_at_end)
    throw UsageError(
        "EmaCallback: at the end its averages would replace the weights that load_best_model_at_end loads: "
        "leave out the moving average (--ema-decay) or load_best_model_at_end");
  means_.tensors.clear();
  for (const auto& entry : event.trainer.model().parameters()) {
    const at::Tensor weight = entry.tensor.detach();
    means_.tensors.push_back(c10::isReducedFloatingType(weight.scalar_type()) ? weight.to(at::kFloat)
                                                                              : weight.clone());
  }
  event.trainer.accelerator().register_for_checkpointing("ema", means_);
}

/// All ranks have rank 0's weights by now. After resuming, the means are the checkpoint's.
void EmaCallback::on_train_begin(CallbackContext& event) {
  if (event.state.global_step > 0) return;
  const at::NoGradGuard no_grad;
  const auto parameters = event.trainer.model().parameters();
  for (std::size_t i = 0; i < means_.tensors.size(); ++i) means_.tensors[i].copy_(parameters[i].tensor);
}

void EmaCallback::on_optimizer_step(CallbackContext& event) {
  const at::NoGradGuard no_grad;
  const auto parameters = event.trainer.model().parameters();
  std::vector<at::Tensor> weights;
  for (std::size_t i = 0; i < means_.tensors.size(); ++i)
    weights.push_back(parameters[i].tensor.to(means_.tensors[i].scalar_type()));
  // Like AveragedModel, the averages begin with the weights after the first step.
  at::_foreach_lerp_(means_.tensors, weights, event.state.global_step == 0 ? 1 : 1 - decay_);
}

void EmaCallback::on_train_end(CallbackContext& event) {
  if (!apply_at_end_) return;
  const at::NoGradGuard no_grad;
  const auto parameters = event.trainer.model().parameters();
  for (std::size_t i = 0; i < means_.tensors.size(); ++i) parameters[i].tensor.copy_(means_.tensors[i]);
}

SafeTensors EmaCallback::Means::state_dict() const {
  SafeTensors state;
  for (std::size_t i = 0; i < tensors.size(); ++i) state.tensors.emplace(key_of(i), tensors[i]);
  return state;
}

void EmaCallback::Means::load_state_dict(const SafeTensors& state) {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto found = state.tensors.find(key_of(i));
    if (found == state.tensors.end() || found->second.sizes() != tensors[i].sizes())
      throw DataError("the checkpoint's mean of the weights does not fit the model: " + key_of(i));
    tensors[i].copy_(found->second);
  }
}

}  // namespace lockstep
