#include "train/graphs/step_graphs.hpp"

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "lockstep/core/error.hpp"
#include "train/graphs/rehearsal.hpp"

namespace lockstep::train {
namespace {

using Tensors = StepGraphs::Tensors;

/// The most parts that are remembered. Shapes and places of gradients that never return would fill memory.
constexpr std::size_t kMostParts = 256;
/// Runs that are watched before a part that never does the same twice is given up.
constexpr int kMostRehearsals = 6;
constexpr int kRehearsals = 2;

Tensors detached(const Tensors& tensors) {
  Tensors results;
  for (const auto& tensor : tensors) results.push_back(tensor.defined() ? tensor.detach() : tensor);
  return results;
}

const void* place_of(const at::Tensor& gradient) {
  if (!gradient.defined()) return nullptr;
  return gradient.layout() == at::kStrided ? gradient.const_data_ptr() : gradient.unsafeGetTensorImpl();
}

/// The same memory, which the result does not keep allocated.
at::Tensor over_same_memory(const at::Tensor& tensor) {
  return at::for_blob(tensor.data_ptr(), tensor.sizes())
      .strides(tensor.strides())
      .options(tensor.options())
      .target_device(tensor.device())
      .make_tensor();
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// Why a part failed to be recorded, in one line.
std::string complaint(const std::exception& error) {
  const auto* const of_torch = dynamic_cast<const c10::Error*>(&error);
  if (of_torch == nullptr) return first_line(error.what());
  return "It must not wait for the device, as item(), printing a tensor and copying it to the CPU do. CUDA says: " +
         first_line(of_torch->what_without_backtrace());
}

}  // namespace

std::string kinds_of(const Tensors& tensors) {
  std::string text;
  for (const auto& tensor : tensors) {
    if (!text.empty()) text += "; ";
    text += fmt::format("{} [{}] ({}) on {}", c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "),
                        fmt::join(tensor.strides(), ", "), tensor.device().str());
  }
  return text;
}

struct StepGraphs::Recording {
  Recording(const at::Device& device, std::unique_ptr<comm::CudaGraph> the_graph)
      : replays(device), graph(std::move(the_graph)) {}

  const Tensors* inputs = nullptr;
  Tensors results;
  /// Of the parameters, after it.
  Tensors gradients;
  /// Whether it has made them.
  bool made_gradients = false;
  comm::GraphReplays replays;
  /// Destroyed first: it uses the memory of the others.
  std::unique_ptr<comm::CudaGraph> graph;
};

struct StepGraphs::Part {
  int rehearsals = 0;
  /// Runs one after the other that did the same.
  int alike = 0;
  std::uint64_t signature = 0;
  std::unique_ptr<Recording> recording;
};

StepGraphs::StepGraphs(const at::Device& device, StepGraphsOptions options)
    : device_(device),
      options_(std::move(options)),
      recorder_(*comm::GraphRecorder::of(device)),
      pool_(recorder_.make_pool()) {}

StepGraphs::~StepGraphs() { rescue_gradients(); }

void StepGraphs::set_parameters(Tensors parameters) {
  forget();
  parameters_ = std::move(parameters);
}

Tensors StepGraphs::run(const std::string& name, const Tensors& inputs, const Function& function, bool rehearses) {
  replayed_ = false;
  called_ = true;
  if (!is_on() || steps_ < options_.warmup_steps) return detached(function(inputs));
  const std::string shape = kinds_of(inputs);
  const auto find = [&] { return part_of(name + '\n' + shape + '\n' + gradient_places()); };
  Part* part = find();
  if (part != nullptr && part->recording != nullptr && !part->recording->replays.is_valid()) {
    // This also moves gradients.
    forget();
    part = find();
  }
  if (part == nullptr) return detached(function(inputs));
  if (part->recording != nullptr) {
    called_ = false;
    return replay(*part->recording, inputs);
  }
  if (rehearses && options_.rehearse && part->alike < kRehearsals) return rehearse(*part, inputs, function);
  if (!can_read_gradients() || !has_room_for(shape)) return detached(function(inputs));
  Recording* const recording = record(*part, shape, inputs, function);
  return recording == nullptr ? detached(function(inputs)) : replay(*recording, inputs);
}

void StepGraphs::end_step() {
  ++steps_;
  rescue_gradients();
  for (auto* const recording : fresh_) {
    if (!recording->made_gradients || !options_.owns_gradients) continue;
    for (auto& gradient : recording->gradients) {
      if (gradient.defined() && gradient.layout() == at::kStrided) gradient = over_same_memory(gradient);
    }
  }
  fresh_.clear();
}

void StepGraphs::forget() {
  rescue_gradients();
  fresh_.clear();
  for (auto& [key, part] : parts_) part.recording.reset();
  memory_.clear();
  shapes_.clear();
}

void StepGraphs::stop(const std::string& reason) {
  if (!is_on()) return;
  if (options_.must_record)
    throw UsageError(fmt::format("{}: this step cannot be recorded as a CUDA graph. {}", options_.who, reason));
  reason_ = reason;
  forget();
  parts_.clear();
  if (recordings_ > 0) recorder_.empty_cache();
  if (options_.on_end) options_.on_end(reason);
}

StepGraphs::Part* StepGraphs::part_of(const std::string& key) {
  const auto found = parts_.find(key);
  if (found != parts_.end()) return &found->second;
  if (parts_.size() >= kMostParts) return nullptr;
  return &parts_[key];
}

/// A recording that reads gradients of the pool must not get their memory for itself.
bool StepGraphs::can_read_gradients() const { return !gradients_in_pool_ || !fresh_.empty(); }

std::string StepGraphs::gradient_places() const {
  std::string places(parameters_.size() * sizeof(void*), '\0');
  char* next = places.data();
  for (const auto& parameter : parameters_) {
    const void* const place = place_of(parameter.grad());
    std::memcpy(next, &place, sizeof place);
    next += sizeof place;
  }
  return places;
}

bool StepGraphs::has_room_for(const std::string& shape) {
  if (shape.empty() || shapes_.contains(shape) || shapes_.size() < options_.shapes) return true;
  if (!std::exchange(said_too_many_, true) && options_.on_too_many_shapes) options_.on_too_many_shapes();
  return false;
}

Tensors StepGraphs::rehearse(Part& part, const Tensors& inputs, const Function& function) {
  Tensors results;
  std::string obstacle;
  {
    const Rehearsal rehearsal(device_);
    results = detached(function(inputs));
    obstacle = rehearsal.obstacle();
    part.alike = part.rehearsals > 0 && rehearsal.signature() == part.signature ? part.alike + 1 : 1;
    part.signature = rehearsal.signature();
  }
  for (const auto& result : results) {
    if (obstacle.empty() && result.defined() && result.device() != device_)
      obstacle = "A result of a step, its loss or the loss's weight, is not on the device but on " + result.device().str();
  }
  if (++part.rehearsals >= kMostRehearsals && part.alike < kRehearsals && obstacle.empty())
    obstacle = "Steps with inputs of one shape do not do the same operations with the same numbers";
  if (!obstacle.empty()) stop(obstacle);
  return results;
}

const Tensors& StepGraphs::memory_of(const std::string& shape, const Tensors& inputs) {
  Tensors& memory = memory_[shape];
  if (memory.empty()) {
    for (const auto& input : inputs) memory.push_back(input.detach().clone());
  }
  return memory;
}

StepGraphs::Recording* StepGraphs::record(Part& part, const std::string& shape, const Tensors& inputs,
                                          const Function& function) {
  if (!recorder_.can_record_here(device_)) {
    stop("The current stream is the default one");
    return nullptr;
  }
  const auto put_back = options_.host_state ? options_.host_state() : std::function<void()>();
  Tensors before;
  for (const auto& parameter : parameters_) before.push_back(parameter.grad());
  std::string problem;
  try {
    recorder_.empty_cache();
    auto made = std::make_unique<Recording>(device_, recorder_.make_graph(pool_));
    made->inputs = &memory_of(shape, inputs);
    made->replays.record(*made->graph, [&] { made->results = detached(function(*made->inputs)); });
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      made->gradients.push_back(parameters_[i].grad());
      if (place_of(made->gradients[i]) != place_of(before[i])) made->made_gradients = true;
    }
    part.recording = std::move(made);
  } catch (const std::exception& error) {
    problem = complaint(error);
  }
  if (problem.empty()) {
    if (!shape.empty()) shapes_.insert(shape);
    ++recordings_;
    fresh_.push_back(part.recording.get());
    return part.recording.get();
  }
  set_gradients(before);
  if (put_back) put_back();
  stop(problem);
  return nullptr;
}

Tensors StepGraphs::replay(Recording& recording, const Tensors& inputs) {
  for (std::size_t i = 0; i < inputs.size(); ++i) (*recording.inputs)[i].copy_(inputs[i], /*non_blocking=*/true);
  recording.replays.run();
  recording.graph->replay();
  set_gradients(recording.gradients);
  if (recording.made_gradients) gradients_in_pool_ = options_.owns_gradients;
  replayed_ = true;
  return recording.results;
}

void StepGraphs::set_gradients(const Tensors& gradients) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].mutable_grad();
    if (gradient.unsafeGetTensorImpl() != gradients[i].unsafeGetTensorImpl()) gradient = gradients[i];
  }
}

void StepGraphs::rescue_gradients() {
  if (!std::exchange(gradients_in_pool_, false)) return;
  for (const auto& parameter : parameters_) {
    at::Tensor& gradient = parameter.mutable_grad();
    if (gradient.defined()) gradient = gradient.detach().clone();
  }
}

}  // namespace lockstep::train
