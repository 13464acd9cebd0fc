#include "train/graphs/step_graphs.hpp"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "core/first_line.hpp"
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
/// How often a recording may lose what it refers to.
constexpr int kMostInvalid = 3;

/// Whether a recorded part is watched once more, as usual, at this use: for what rarely changes.
bool is_looked_at(std::int64_t use) { return use == 100 || use == 1000 || use == 10000; }

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

Tensors clones(const Tensors& tensors) {
  Tensors result;
  for (const auto& tensor : tensors) result.push_back(tensor.defined() ? tensor.detach().clone() : tensor);
  return result;
}

void put(const Tensors& values, const Tensors& tensors) {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].defined() && values[i].defined()) tensors[i].copy_(values[i]);
  }
}

/// Kernels that add in any order differ by less.
constexpr double kTolerance = 0.02;

/// How a replay differs from a usual run, against what the latter has changed; "" if they are near. Waits for
/// the device. Numbers that are not finite as usual are not compared.
std::string difference_of(const char* what, const Tensors& usual, const Tensors& replayed,
                          const Tensors& before) {
  const at::NoGradGuard no_grad;
  at::Tensor error, change;
  for (std::size_t i = 0; i < usual.size(); ++i) {
    if (usual[i].defined() != replayed[i].defined()) return fmt::format("{} are missing", what);
    if (!usual[i].defined() || !usual[i].is_floating_point() || usual[i].layout() != at::kStrided) continue;
    const at::Tensor one = usual[i].detach();
    const bool has_base = i < before.size() && before[i].defined();
    const at::Tensor apart = replayed[i].detach().sub(one).square().sum(at::kDouble);
    const at::Tensor own = (has_base ? one.sub(before[i].detach()) : one).square().sum(at::kDouble);
    error = error.defined() ? error + apart : apart;
    change = change.defined() ? change + own : own;
  }
  if (!error.defined()) return "";
  const double own = std::sqrt(change.item<double>()), apart = std::sqrt(error.item<double>());
  if (!std::isfinite(own) || apart <= kTolerance * own) return "";
  return fmt::format("{} differ by {:.3g}, while a step changes them by {:.3g}", what, apart, own);
}

/// Why a part failed to be recorded, in one line.
std::string complaint(const std::exception& error) {
  const auto* const of_torch = dynamic_cast<const c10::Error*>(&error);
  if (of_torch == nullptr) return first_line_of(error.what());
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr)
    return "There is too little memory for it";
  const std::string text = first_line_of(of_torch->what_without_backtrace());
  if (text.find("captur") == std::string::npos) return "LibTorch says: " + text;
  return "It must not wait for the device, as item(), printing a tensor and copying it to the CPU do. CUDA "
         "says: " +
         text;
}

}  // namespace

std::string kinds_of(const Tensors& tensors) {
  std::string text;
  for (const auto& tensor : tensors) {
    if (!text.empty()) text += "; ";
    text += fmt::format("{} [{}] ({}) on {}", c10::toString(tensor.scalar_type()),
                        fmt::join(tensor.sizes(), ", "), fmt::join(tensor.strides(), ", "),
                        tensor.device().str());
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
  std::int64_t uses = 0;
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

Tensors StepGraphs::run(const std::string& name, const Tensors& inputs, const Function& function,
                        const Manner& manner) {
  replayed_ = false;
  called_ = true;
  if (!is_on()) return detached(function(inputs));
  const comm::RecordableWork recordable;
  if (steps_ < options_.warmup_steps) return detached(function(inputs));
  const std::string shape = kinds_of(inputs);
  const auto find = [&] { return part_of(name + '\n' + shape + '\n' + gradient_places()); };
  Part* part = find();
  if (part != nullptr && part->recording != nullptr && !part->recording->replays.is_valid()) {
    if (++invalid_ > kMostInvalid) {
      stop("What a step refers to, such as the optimizer's state or options, changes again and again");
      return detached(function(inputs));
    }
    // This also moves gradients.
    forget();
    part = find();
  }
  if (part == nullptr) return detached(function(inputs));
  if (part->recording != nullptr && manner.rehearses && options_.rehearse && is_looked_at(++part->uses))
    return rehearse(*part, inputs, function);
  if (part->recording != nullptr) {
    called_ = false;
    return replay(*part->recording, inputs);
  }
  if (manner.rehearses && options_.rehearse && part->alike < kRehearsals)
    return rehearse(*part, inputs, function);
  if (!can_read_gradients() || !has_room_for(shape)) return detached(function(inputs));
  if (manner.changes) return prove(*part, shape, inputs, function, manner.changes());
  Recording* const recording = record(*part, shape, inputs, function);
  return recording == nullptr ? detached(function(inputs)) : replay(*recording, inputs);
}

void StepGraphs::end_step() {
  ++steps_;
  rescue_gradients();
  for (auto* const recording : fresh_) {
    if (!recording->made_gradients) continue;
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
  // Allocators do not begin again with a pool whose graphs are all gone.
  pool_ = recorder_.make_pool();
}

void StepGraphs::stop(const std::string& reason) {
  if (!is_on()) return;
  if (options_.must_record)
    throw UsageError(
        fmt::format("{}: this step cannot be recorded as a CUDA graph. {}", options_.who, reason));
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
    const Rehearsal rehearsal(device_, inputs);
    results = detached(function(inputs));
    obstacle = rehearsal.obstacle();
    part.alike = part.rehearsals > 0 && rehearsal.signature() == part.signature ? part.alike + 1 : 1;
    part.signature = rehearsal.signature();
  }
  for (const auto& result : results) {
    if (obstacle.empty() && result.defined() && result.device() != device_)
      obstacle = "A result of a step, its loss or the loss's weight, is not on the device but on " +
                 result.device().str();
  }
  const bool is_unlike = part.recording != nullptr || ++part.rehearsals >= kMostRehearsals;
  if (is_unlike && part.alike < kRehearsals && obstacle.empty())
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

struct StepGraphs::Moment {
  /// Of the parameters: the tensors, and their values.
  Tensors gradients, gradient_values;
  std::vector<Tensors> values;
  at::Tensor generator;
};

bool StepGraphs::note(Moment& moment, const std::vector<Tensors>& changes) const {
  try {
    for (const auto& parameter : parameters_) moment.gradients.push_back(parameter.grad());
    moment.gradient_values = clones(moment.gradients);
    for (const auto& group : changes) moment.values.push_back(clones(group));
  } catch (const c10::OutOfMemoryError&) {
    return false;
  }
  const at::Generator& generator = at::globalContext().defaultGenerator(device_);
  moment.generator = generator.get_state().clone();
  return true;
}

void StepGraphs::go_back(const Moment& moment, const std::vector<Tensors>& changes) {
  set_gradients(moment.gradients);
  gradients_in_pool_ = false;
  put(moment.gradient_values, moment.gradients);
  for (std::size_t i = 0; i < changes.size(); ++i) put(moment.values[i], changes[i]);
  at::Generator generator = at::globalContext().defaultGenerator(device_);
  generator.set_state(moment.generator);
}

/// Between what a part gave as usual, and by its first replay; "" if they are near.
std::string StepGraphs::difference_between(const Tensors& usual, const Tensors& replayed,
                                           const Moment& before, const Moment& after,
                                           const std::vector<Tensors>& changes) const {
  const comm::GraphRecorder::Waiting may_wait(device_);
  std::string difference = difference_of("results", usual, replayed, {});
  Tensors gradients;
  for (const auto& parameter : parameters_) gradients.push_back(parameter.grad());
  if (difference.empty())
    difference = difference_of("gradients", after.gradient_values, gradients, before.gradient_values);
  for (std::size_t i = 0; i < changes.size() && difference.empty(); ++i)
    difference = difference_of("values", after.values[i], changes[i], before.values[i]);
  if (difference.empty()) return "";
  return "The first replay of a recording differs from the usual step that it stands for: " + difference +
         ". Please report it";
}

Tensors StepGraphs::prove(Part& part, const std::string& shape, const Tensors& inputs,
                          const Function& function, const std::vector<Tensors>& changes) {
  const auto host_state = [this] { return options_.host_state ? options_.host_state() : [] {}; };
  constexpr const char* kMemory = "There is too little memory to compare a recording with a usual step";
  const auto host_before = host_state();
  Moment before, after;
  if (!note(before, changes)) stop(kMemory);
  if (!is_on()) return detached(function(inputs));
  Tensors usual;
  try {
    usual = detached(function(inputs));
  } catch (const c10::OutOfMemoryError&) {
    go_back(before, changes);
    host_before();
    before = {};
    stop(kMemory);
    return detached(function(inputs));
  }
  const auto host_after = host_state();
  if (is_on() && !note(after, changes)) stop(kMemory);
  if (!is_on()) return usual;
  go_back(before, changes);
  host_before();
  const auto take_usual = [&] {
    go_back(after, changes);
    host_after();
    replayed_ = false;
    return usual;
  };
  Recording* const recording = record(part, shape, inputs, function);
  if (recording == nullptr) return take_usual();
  const Tensors replayed = replay(*recording, inputs);
  std::string problem;
  try {
    problem = difference_between(usual, replayed, before, after, changes);
  } catch (const c10::OutOfMemoryError&) {
    problem = kMemory;
  }
  if (problem.empty()) return replayed;
  take_usual();
  stop(problem);
  return usual;
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
  for (std::size_t i = 0; i < inputs.size(); ++i)
    (*recording.inputs)[i].copy_(inputs[i], /*non_blocking=*/true);
  recording.replays.run();
  recording.graph->replay();
  set_gradients(recording.gradients);
  if (recording.made_gradients) gradients_in_pool_ = true;
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
