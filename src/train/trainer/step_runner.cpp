#include "train/trainer/step_runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"
#include "lockstep/optim/fused_optimizer.hpp"
#include "lockstep/optim/zero_grad.hpp"

namespace lockstep::train {
namespace {

/// What PyTorch asks for, because the reducer arranges its buckets in the first steps.
constexpr int kWarmupSteps = 3, kWarmupStepsOfDdp = 11;

using Tensors = std::vector<at::Tensor>;

void append(std::string& text, const void* value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// Each trained parameter once.
Tensors trained_parameters(Trainer& trainer) {
  Tensors result;
  std::set<const void*> seen;
  for (const auto& entry : trainer.model().parameters()) {
    if (entry.tensor.requires_grad() && seen.insert(entry.tensor.unsafeGetTensorImpl()).second)
      result.push_back(entry.tensor);
  }
  return result;
}

/// Where the model's tensors are.
std::string places_of(Trainer& trainer, std::uint64_t loads) {
  std::string places = std::to_string(loads);
  for (const auto& entry : trainer.model().parameters()) {
    append(places, entry.tensor.unsafeGetTensorImpl());
    append(places, entry.tensor.const_data_ptr());
    places += entry.tensor.requires_grad() ? '1' : '0';
  }
  for (const auto& entry : trainer.model().buffers()) append(places, entry.tensor.const_data_ptr());
  return places;
}

std::string joined_names(const Batch& batch) { return fmt::format("{}", fmt::join(batch.names(), ",")); }

Batch with_tensors(const Batch& batch, const Tensors& tensors) {
  Batch result = batch;
  std::size_t next = 0;
  for (const auto& name : batch.names()) result.set(name, tensors[next++]);
  return result;
}

Tensors tensors_of(const Batch& batch) {
  Tensors tensors;
  for (const auto& [name, tensor] : batch.items()) tensors.push_back(tensor);
  return tensors;
}

Tensors copies_of(const Tensors& tensors) {
  Tensors copies;
  for (const auto& tensor : tensors) copies.push_back(tensor.clone());
  return copies;
}

}  // namespace

StepRunner::StepRunner(Trainer& trainer, TrainingScope& scope, AcceleratedOptimizer& optimizer, bool records)
    : trainer_(trainer), scope_(scope), window_(scope.window()), optimizer_(optimizer) {
  if (FoldedClipping::is_possible(trainer, optimizer.optimizer()))
    folded_.emplace(trainer.accelerator().device());
  if (records) begin_recording();
}

void StepRunner::begin_recording() {
  const Accelerator& accelerator = trainer_.accelerator();
  const bool has_ranks = accelerator.num_processes() > 1;
  const Trainer* const trainer = &trainer_;
  const auto say = [trainer](const std::string& text) { trainer->logger().info("cuda_graphs: ", text); };
  StepGraphsOptions options{.warmup_steps = has_ranks ? kWarmupStepsOfDdp : kWarmupSteps,
                            .must_record = trainer_.args().cuda_graphs == CudaGraphs::on,
                            .owns_gradients = !(has_ranks && accelerator.options().ddp.gradient_as_bucket_view),
                            .host_state = [this] {
                              return [this, memory = window_.memory()] { window_.set_memory(memory); };
                            },
                            .on_end = [say](const std::string& reason) { say("steps are not recorded. " + reason); },
                            .on_too_many_shapes = [say] {
                              say("batches have more than 8 shapes, and those of the others are not recorded: pad "
                                  "them to fewer lengths (pad_to_multiple_of)");
                            }};
  graphs_.emplace(accelerator.device(), std::move(options));
  window_.keep_weight_in_place();
  records_step_ = dynamic_cast<optim::FusedOptimizer*>(&optimizer_.optimizer()) != nullptr;
  if (!records_step_)
    say("the optimizer's step is not recorded, because it is none of lockstep::optim; the rest of a step is");
}

/// Recordings refer to memory. Models that were loaded, converted or frozen since are recorded anew.
void StepRunner::begin_window() {
  std::string memory = places_of(trainer_, scope_.loads());
  if (memory != memory_) {
    memory_ = std::move(memory);
    graphs_->set_parameters(trained_parameters(trainer_));
    changes_.clear();
    if (kept_) kept_->drop();
    kept_.reset();
  }
  if (window_.steps() > 1 && !kept_) kept_.emplace(trained_parameters(trainer_));
}

bool StepRunner::is_ordinary(const Batch& batch) {
  if (!batch.text_items().empty()) {
    graphs_->stop("Batches have columns of texts, which a replay would not read");
    return false;
  }
  const at::Device& device = trainer_.accelerator().device();
  for (const auto& [name, tensor] : batch.items()) {
    if (tensor.defined() && tensor.device() == device && tensor.layout() == at::kStrided) continue;
    graphs_->stop(fmt::format("The tensor '{}' of a batch is not a dense one on {}", name, device.str()));
    return false;
  }
  // A loss may leave out rows that were repeated, and a window that ends too early is scaled by the host.
  const bool has_all_rows = std::ranges::find(batch.valid, false) == batch.valid.end();
  return has_all_rows && (!window_.syncs() || window_.number() == window_.length());
}

StepRunner::Tensors StepRunner::compute(const Batch& batch) {
  const Loss loss = trainer_.training_step(batch);
  Tensors results{loss.value};
  if (loss.weight) results.push_back(loss.weight->tensor());
  return results;
}

Loss StepRunner::usual_micro_batch(const Batch& batch) {
  gradients_stay_ = false;
  // Recording has ended within this window.
  if (kept_) kept_->bring_home();
  const Loss loss = trainer_.training_step(batch);
  if (kept_) kept_->changed(kept_->find_changed());
  return {loss.value.detach(), loss.weight};
}

Loss StepRunner::micro_batch(const Batch& batch) {
  norm_.reset();
  if (!is_recording_on()) return usual_micro_batch(batch);
  if (window_.number() == 1) begin_window();
  if (kept_) kept_->bring_home();
  const bool clips = window_.syncs();
  const auto function = [&](const Tensors& inputs) {
    Tensors results = compute(with_tensors(batch, inputs));
    if (kept_) found_ = kept_->find_changed();
    if (clips) results.push_back(clip_gradients());
    return results;
  };
  const std::string part =
      fmt::format("micro-batch {} of {}{}: {}", std::min<std::int64_t>(window_.number(), 2), window_.length(),
                  clips ? ", the last" : "", joined_names(batch));
  const Tensors inputs = tensors_of(batch);
  const bool is_ordinary_one = is_ordinary(batch);
  Tensors results = is_ordinary_one ? graphs_->run(part, inputs, function) : function(inputs);
  const bool is_replay = is_ordinary_one && graphs_->replayed();
  gradients_stay_ = is_replay || (kept_ && graphs_->recordings() > 0);
  if (kept_) remember_changes(is_replay ? part + kinds_of(inputs) : "");
  const bool is_weighted = results.size() > (clips ? 2U : 1U);
  if (is_replay) {
    process_heartbeat().perhaps_waiting("graphed step");
    if (!graphs_->called()) window_.was_replayed(is_weighted);
    results = copies_of(results);
  }
  if (clips) norm_ = results.back();
  Loss loss{results.front().detach()};
  if (is_weighted) loss.weight = results[1].detach();
  return loss;
}

/// `part`: what was replayed; "" if nothing was.
void StepRunner::remember_changes(const std::string& part) {
  if (!part.empty() && !graphs_->called()) return kept_->changed(changes_.at(part));
  kept_->changed(found_);
  if (!part.empty()) changes_[part] = found_;
}

at::Tensor StepRunner::clip() { return norm_.defined() ? norm_ : clip_gradients(); }

/// A limit of infinity leaves the gradients unchanged and only measures their norm.
at::Tensor StepRunner::clip_gradients() {
  const double limit = trainer_.args().max_grad_norm;
  Tensors parameters;
  for (const auto& entry : trainer_.model().parameters()) {
    if (entry.tensor.grad().defined()) parameters.push_back(entry.tensor);
  }
  if (folded_) return folded_->measure(trainer_.accelerator(), parameters, limit);
  return trainer_.accelerator().clip_grad_norm_(parameters,
                                                limit > 0 ? limit : std::numeric_limits<double>::infinity());
}

void StepRunner::step_optimizer() { optimizer_.step_by(folded_ ? folded_->factor() : at::Tensor()); }

void StepRunner::step() {
  if (kept_) kept_->hide_unchanged();
  if (!is_recording_on() || !records_step_ || !gradients_stay_) return step_optimizer();
  const auto function = [this](const Tensors&) {
    step_optimizer();
    return Tensors{};
  };
  graphs_->run("optimizer", {}, function, /*rehearses=*/false);
  if (graphs_->called()) return;
  window_.was_stepped(optimizer_.optimizer());
  process_heartbeat().working("optimizer");
  process_heartbeat().finished_step();
}

void StepRunner::clear() {
  if (kept_ && is_recording_on()) {
    kept_->clear();
  } else {
    if (kept_) kept_->drop();
    kept_.reset();
    optimizer_.zero_grad();
  }
  if (graphs_) graphs_->end_step();
}

/// The prepared optimizer would wait for the step.
void StepRunner::discard() {
  if (kept_) return kept_->clear();
  zero_grad(optimizer_.optimizer());
}

std::string graph_obstacle(const Trainer& trainer) {
  const Accelerator& accelerator = trainer.accelerator();
  const AcceleratorOptions& options = accelerator.options();
  if (options.fsdp_plugin) return "The model is fully sharded (fsdp)";
  if (options.mixed_precision == MixedPrecision::fp16)
    return "Fp16 scales losses, and the host waits for what it finds in the gradients: bf16 does not";
  if (trainer.args().gradient_checkpointing)
    return "gradient_checkpointing sets random states within a step";
  if (options.gradient_accumulation.sync_each_batch) return "gradient_accumulation.sync_each_batch is on";
  if (accelerator.num_processes() == 1) return "";
  if (!accelerator.process_group().object_device().is_cuda() && accelerator.device().is_cuda())
    return "The ranks communicate over Gloo, for which the host waits";
  if (options.ddp.find_unused_parameters) return "ddp_find_unused_parameters waits for the device in each step";
  if (options.ddp.non_finite_gradients != NonFiniteGradients::ignore)
    return "ddp.non_finite_gradients waits for the device in each step";
  if (options.comm_hook != "no" && options.comm_hook != "fp16" && options.comm_hook != "bf16")
    return "comm_hook " + options.comm_hook + " does not do the same in each step";
  return "";
}

bool records_steps(const Trainer& trainer) {
  const CudaGraphs wanted = trainer.args().cuda_graphs;
  if (wanted == CudaGraphs::off) return false;
  const at::Device& device = trainer.accelerator().device();
  const bool must = wanted == CudaGraphs::on;
  if (comm::GraphRecorder::of(device) == nullptr) {
    if (must)
      throw UsageError("cuda_graphs is on, but the device is " + device.str() + ": set it to auto, or use a CUDA device");
    return false;
  }
  const std::string obstacle = graph_obstacle(trainer);
  if (obstacle.empty()) return true;
  if (must) throw UsageError("cuda_graphs is on, but steps cannot be recorded as CUDA graphs. " + obstacle);
  trainer.logger().info("cuda_graphs: steps are not recorded. ", obstacle);
  return false;
}

}  // namespace lockstep::train
