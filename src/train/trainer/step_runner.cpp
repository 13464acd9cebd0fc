#include "train/trainer/step_runner.hpp"

#include <ATen/ops/ones.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <set>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"
#include "lockstep/optim/fused_optimizer.hpp"
#include "lockstep/optim/zero_grad.hpp"

namespace lockstep::train {
namespace {

/// They make the optimizer's state, load kernels and choose algorithms.
constexpr int kWarmupSteps = 3;

using Tensors = std::vector<at::Tensor>;

void append(std::string& text, const void* value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// Each trained parameter once: those of the model, and what else the optimizer has, such as a loss's
/// weights.
Tensors trained_parameters(Trainer& trainer, const torch::optim::Optimizer& optimizer) {
  Tensors result;
  std::set<const void*> seen;
  const auto add = [&](const at::Tensor& parameter) {
    if (parameter.requires_grad() && seen.insert(parameter.unsafeGetTensorImpl()).second)
      result.push_back(parameter);
  };
  for (const auto& entry : trainer.model().parameters()) add(entry.tensor);
  for (const auto& group : optimizer.param_groups()) std::ranges::for_each(group.params(), add);
  return result;
}

/// Whether every parameter that the optimizer steps now has been stepped before, which makes its state.
bool has_stepped_all(const torch::optim::Optimizer& optimizer) {
  const auto& state = optimizer.state();
  if (state.empty()) return true;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      if (parameter.grad().defined() && state.find(parameter.unsafeGetTensorImpl()) == state.end())
        return false;
    }
  }
  return true;
}

/// Where the model's tensors are.
std::string places_of(Trainer& trainer, const torch::optim::Optimizer& optimizer, std::uint64_t loads) {
  std::string places = std::to_string(loads);
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) append(places, parameter.const_data_ptr());
  }
  for (const auto& entry : trainer.model().parameters()) {
    append(places, entry.tensor.unsafeGetTensorImpl());
    append(places, entry.tensor.const_data_ptr());
    places += entry.tensor.requires_grad() ? '1' : '0';
  }
  for (const auto& entry : trainer.model().buffers()) append(places, entry.tensor.const_data_ptr());
  for (const bool trains : trainer.model().training_modes()) places += trains ? '1' : '0';
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

/// On the current stream of the current device.
HostBoundWatch::IsReached mark_of_device() {
  const c10::impl::VirtualGuardImpl streams(at::kCUDA);
  const auto event = std::make_shared<c10::Event>(at::kCUDA);
  event->record(streams.getStream(streams.getDevice()));
  return [event] { return event->query(); };
}

Tensors copies_of(const Tensors& tensors) {
  Tensors copies;
  for (const auto& tensor : tensors) copies.push_back(tensor.clone());
  return copies;
}

}  // namespace

StepRunner::StepRunner(Trainer& trainer, TrainingScope& scope, AcceleratedOptimizer& optimizer, bool records)
    : trainer_(trainer),
      scope_(scope),
      window_(scope.window()),
      optimizer_(optimizer),
      scales_(scope.window().scaling() != nullptr) {
  if (trainer.accelerator().device().is_cuda()) watch_.emplace(&mark_of_device);
  if (FoldedClipping::is_possible(trainer, optimizer.optimizer()))
    folded_.emplace(trainer.accelerator().device());
  if (records) begin_recording();
}

void StepRunner::begin_recording() {
  const Accelerator& accelerator = trainer_.accelerator();
  const Trainer* const trainer = &trainer_;
  const auto say = [trainer](const std::string& text) { trainer->logger().info("cuda_graphs: ", text); };
  StepGraphsOptions options{
      .warmup_steps = kWarmupSteps,
      .must_record = trainer_.args().cuda_graphs == CudaGraphs::on,
      .host_state = [this] { return host_state(); },
      .on_end = [say](const std::string& reason) { say("steps are not recorded. " + reason); },
      .on_too_many_shapes =
          [say] {
            say("batches have more than 8 shapes, and those of the others are not recorded: pad "
                "them to fewer lengths (pad_to_multiple_of)");
          }};
  graphs_.emplace(accelerator.device(), std::move(options));
  window_.keep_weight_in_place();
  const bool is_ours = dynamic_cast<optim::FusedOptimizer*>(&optimizer_.optimizer()) != nullptr;
  records_step_ = is_ours && !scales_;
  if (!is_ours)
    say("the optimizer's step is not recorded, because it is none of lockstep::optim; the rest of a step is");
}

/// Recordings refer to memory. Models that were loaded, converted or frozen since are recorded anew.
void StepRunner::begin_window() {
  std::string memory = places_of(trainer_, optimizer_.optimizer(), scope_.loads());
  if (memory != memory_) {
    memory_ = std::move(memory);
    graphs_->set_parameters(trained_parameters(trainer_, optimizer_.optimizer()));
    changes_.clear();
    if (kept_) kept_->drop();
    kept_.reset();
  }
  if (window_.steps() > 1 && !kept_) kept_.emplace(trained_parameters(trainer_, optimizer_.optimizer()));
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
  if (kept_) {
    kept_->bring_home();
    kept_->mark();
  }
  const Loss loss = trainer_.training_step(batch);
  if (kept_) kept_->changed(kept_->find_changed());
  return {loss.value.detach(), loss.weight};
}

Loss StepRunner::micro_batch(const Batch& batch) {
  norm_.reset();
  if (!is_recording_on()) return usual_micro_batch(batch);
  if (window_.number() == 1) begin_window();
  if (kept_) kept_->bring_home();
  const bool clips = window_.syncs() && !scales_;
  // What the scaler does on the host for each loss: a replay does not.
  if (scales_) window_.scaling()->scale(at::ones({}, trainer_.accelerator().device()));
  const auto function = [&](const Tensors& inputs) {
    if (kept_) kept_->mark();
    Tensors results = compute(with_tensors(batch, inputs));
    if (kept_) found_ = kept_->find_changed();
    if (clips) results.push_back(clip_gradients());
    return results;
  };
  const std::string part =
      fmt::format("micro-batch {} of {}{}{}: {}", std::min<std::int64_t>(window_.number(), 2),
                  window_.length(), clips ? ", the last" : "", kept_ ? ", kept" : "", joined_names(batch));
  const Tensors inputs = tensors_of(batch);
  const bool is_ordinary_one = is_ordinary(batch);
  const StepGraphs::Manner manner{.changes = [this] { return changes_of_micro_batch(); }};
  Tensors results = is_ordinary_one ? graphs_->run(part, inputs, function, manner) : function(inputs);
  const bool is_replay = is_ordinary_one && graphs_->replayed();
  gradients_stay_ = is_replay || (kept_ && graphs_->recordings() > 0);
  if (kept_) remember_changes(is_ordinary_one ? part + kinds_of(inputs) : "");
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

/// `part`: what was replayed or may be later; "" otherwise.
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
  const bool records = is_recording_on() && records_step_ && gradients_stay_;
  if (!records || !has_stepped_all(optimizer_.optimizer())) return usual_step();
  process_heartbeat().working("optimizer");
  const auto function = [this](const Tensors&) {
    window_.step(optimizer_.optimizer(), folded_ ? folded_->factor() : at::Tensor());
    return Tensors{};
  };
  graphs_->run("optimizer", {}, function,
               {.rehearses = false, .changes = [this] { return state_of_optimizer(); }});
  window_.was_stepped(optimizer_.optimizer());
  process_heartbeat().finished_step();
}

/// Besides gradients.
std::vector<StepRunner::Tensors> StepRunner::changes_of_micro_batch() {
  Tensors buffers;
  for (const auto& entry : trainer_.model().buffers()) buffers.push_back(entry.tensor);
  return {std::move(buffers), Tensors{window_.place_of_weight()}};
}

std::vector<StepRunner::Tensors> StepRunner::state_of_optimizer() {
  Tensors parameters, state;
  for (const auto& group : optimizer_.optimizer().param_groups())
    parameters.insert(parameters.end(), group.params().begin(), group.params().end());
  for (const auto& [key, entry] : optimizer_.optimizer().state()) {
    if (const auto* const adam = dynamic_cast<const torch::optim::AdamParamState*>(entry.get())) {
      state.insert(state.end(), {adam->exp_avg(), adam->exp_avg_sq(), adam->max_exp_avg_sq()});
    } else if (const auto* const sgd = dynamic_cast<const torch::optim::SGDParamState*>(entry.get())) {
      state.push_back(sgd->momentum_buffer());
    }
  }
  return {std::move(parameters), std::move(state)};
}

/// What the host knows of this step.
std::function<void()> StepRunner::host_state() {
  std::vector<std::pair<torch::optim::AdamParamState*, std::int64_t>> steps;
  for (const auto& [key, entry] : optimizer_.optimizer().state()) {
    if (auto* const adam = dynamic_cast<torch::optim::AdamParamState*>(entry.get()))
      steps.emplace_back(adam, adam->step());
  }
  return [this, memory = window_.memory(), steps = std::move(steps)] {
    window_.set_memory(memory);
    for (const auto& [state, step] : steps) state->step(step);
  };
}

void StepRunner::usual_step() {
  if (!watch_ || is_recording_on()) return step_optimizer();
  watch_->before_step();
  step_optimizer();
  const auto found = watch_->after_step();
  if (!found) return;
  const std::string why = graphs_ ? graphs_->reason() : graph_obstacle(trainer_);
  trainer_.logger().info(
      *found, ". ",
      why.empty() ? "cuda_graphs = auto would launch it as a whole" : "It is not recorded: " + why);
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
  if (kept_) {
    kept_->clear();
  } else {
    zero_grad(optimizer_.optimizer());
  }
  if (graphs_) graphs_->end_step();
}

std::string graph_obstacle(const Trainer& trainer) {
  const Accelerator& accelerator = trainer.accelerator();
  const AcceleratorOptions& options = accelerator.options();
  if (options.fsdp_plugin) return "The model is fully sharded (fsdp)";
  if (options.mixed_precision == MixedPrecision::fp16 && trainer.args().cuda_graphs != CudaGraphs::on)
    return "With fp16, forward and backward are recorded only if cuda_graphs is on";
  if (trainer.args().gradient_checkpointing) return "gradient_checkpointing sets random states within a step";
  if (options.gradient_accumulation.sync_each_batch) return "gradient_accumulation.sync_each_batch is on";
  if (accelerator.num_processes() > 1) return "Trainings of several ranks are not recorded yet";
  return "";
}

bool records_steps(const Trainer& trainer) {
  const CudaGraphs wanted = trainer.args().cuda_graphs;
  if (wanted == CudaGraphs::off) return false;
  const at::Device& device = trainer.accelerator().device();
  const bool must = wanted == CudaGraphs::on;
  if (comm::GraphRecorder::of(device) == nullptr) {
    if (must)
      throw UsageError("cuda_graphs is on, but the device is " + device.str() +
                       ": set it to auto, or use a CUDA device");
    return false;
  }
  const std::string obstacle = graph_obstacle(trainer);
  if (obstacle.empty()) return true;
  if (must) throw UsageError("cuda_graphs is on, but steps cannot be recorded as CUDA graphs. " + obstacle);
  trainer.logger().info("cuda_graphs: steps are not recorded. ", obstacle);
  return false;
}

}  // namespace lockstep::train
