#include "models/compiled/step_function.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <torch/csrc/autograd/custom_function.h>

#include <set>
#include <utility>

#include "lockstep/core/error.hpp"

// One node of autograd stands for the whole module: its forward and its backward run a graph each. What
// backward needs besides the gradients of the outputs is kept by save_for_backward, parameters and inputs
// included, so that autograd notices if they are changed in between.
//
// A graph may return memory that it also returned as something else, or was given: code that joins
// operations drops copies, and the gradient of an added bias is the gradient of the sum. Autograd hands on
// such tensors without a copy where nobody else seems to hold them, so that scaling a parameter's gradient
// would scale another one's. Whatever leaves the node therefore has memory of its own.

namespace lockstep::models::compiled {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Kind = Place::Kind;

/// Carries the program through autograd's node.
struct ProgramHolder : torch::CustomClassHolder {
  explicit ProgramHolder(std::shared_ptr<const StepProgram> program_) : program(std::move(program_)) {}
  std::shared_ptr<const StepProgram> program;
};

/// Of a parameter, buffer or input among the tensors of train_forward().
std::size_t position_of(const Place& place, const StepDescription& step) {
  if (place.kind == Kind::parameter) return place.index;
  if (place.kind == Kind::buffer) return step.parameters.size() + place.index;
  return step.parameters.size() + step.buffers.size() + place.index;
}

const Layout& layout_of(const Place& place, const StepDescription& step) {
  if (place.kind == Kind::parameter) return step.parameters[place.index].layout;
  if (place.kind == Kind::buffer) return step.buffers[place.index].layout;
  return step.inputs[place.index];
}

std::vector<at::Tensor> arguments_of(const StepGraph& graph, const StepDescription& step,
                                     at::TensorList tensors) {
  std::vector<at::Tensor> arguments;
  arguments.reserve(graph.arguments.size());
  for (const Place& place : graph.arguments)
    arguments.push_back(laid_out(tensors[position_of(place, step)], layout_of(place, step)));
  return arguments;
}

/// Makes copies of tensors whose memory it has seen.
class OwnMemory {
 public:
  explicit OwnMemory(const std::vector<at::Tensor>& known) {
    for (const auto& tensor : known) seen_.insert(tensor.storage().unsafeGetStorageImpl());
  }
  at::Tensor operator()(const at::Tensor& tensor) {
    const at::NoGradGuard no_grad;
    at::Tensor own = seen_.contains(tensor.storage().unsafeGetStorageImpl()) ? tensor.clone() : tensor;
    seen_.insert(own.storage().unsafeGetStorageImpl());
    return own;
  }

 private:
  std::set<const void*> seen_;
};

struct ForwardResults {
  std::vector<at::Tensor> outputs, saved;
};

/// Runs forward and changes the buffers.
ForwardResults run_forward(const StepProgram& program, at::TensorList tensors) {
  const auto& step = program.description;
  const auto arguments = arguments_of(step.forward, step, tensors);
  const auto results = run(program.forward, arguments);
  ForwardResults all{std::vector<at::Tensor>(step.output_names.size()), std::vector<at::Tensor>(step.saved)};
  std::vector<at::Tensor> kept = arguments;
  for (std::size_t i = 0; i < results.size(); ++i)
    if (step.forward.results[i].kind == Kind::saved) kept.push_back(results[i]);
  OwnMemory own(kept);
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Place& place = step.forward.results[i];
    if (place.kind == Kind::saved) all.saved[place.index] = results[i];
    if (place.kind == Kind::output) all.outputs[place.index] = own(results[i]);
    if (place.kind == Kind::buffer) tensors[position_of(place, step)].copy_(results[i]);
  }
  return all;
}

struct StepFunction : torch::autograd::Function<StepFunction> {
  static variable_list forward(AutogradContext* context, const c10::intrusive_ptr<ProgramHolder>& holder,
                               at::TensorList tensors) {
    const auto& step = holder->program->description;
    auto results = run_forward(*holder->program, tensors);
    variable_list kept, without_gradient;
    for (const Place& place : step.backward.arguments) {
      if (place.kind == Kind::tangent) continue;
      kept.push_back(place.kind == Kind::saved ? results.saved[place.index]
                                               : tensors[position_of(place, step)]);
    }
    for (std::size_t i = 0; i < results.outputs.size(); ++i)
      if (!step.tangents[i]) without_gradient.push_back(results.outputs[i]);
    context->save_for_backward(std::move(kept));
    context->mark_non_differentiable(without_gradient);
    context->set_materialize_grads(false);
    context->saved_data["program"] = c10::IValue::make_capsule(holder);
    context->saved_data["tensors"] = static_cast<std::int64_t>(tensors.size());
    return std::move(results.outputs);
  }

  static at::Tensor tangent(const Place& place, const variable_list& gradients, const StepDescription& step) {
    const at::Tensor& given = gradients[place.index];
    const Layout& layout = step.tangents[place.index].value();
    if (given.defined()) return laid_out(given, layout);
    return at::empty_strided(layout.sizes, layout.strides, layout.dtype).zero_();
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (at::GradMode::is_enabled()) throw UsageError("CompiledStep has no second derivatives (create_graph)");
    const auto holder =
        c10::static_intrusive_pointer_cast<ProgramHolder>(context->saved_data["program"].toCapsule());
    const auto& step = holder->program->description;
    const auto kept = context->get_saved_variables();
    auto next = kept.begin();
    std::vector<at::Tensor> arguments;
    for (const Place& place : step.backward.arguments) {
      if (place.kind == Kind::tangent) {
        arguments.push_back(tangent(place, gradients, step));
      } else if (place.kind == Kind::saved) {
        arguments.push_back(*next++);
      } else {
        arguments.push_back(laid_out(*next++, layout_of(place, step)));
      }
    }
    const auto results = run(holder->program->backward, arguments);
    OwnMemory own(arguments);
    variable_list all(1 + static_cast<std::size_t>(context->saved_data["tensors"].toInt()));
    for (std::size_t i = 0; i < results.size(); ++i)
      all[1 + position_of(step.backward.results[i], step)] = own(results[i]);
    return all;
  }
};

}  // namespace

std::vector<at::Tensor> train_forward(const std::shared_ptr<const StepProgram>& program,
                                      const std::vector<at::Tensor>& tensors) {
  if (!at::GradMode::is_enabled()) return run_forward(*program, tensors).outputs;
  return StepFunction::apply(c10::make_intrusive<ProgramHolder>(program), at::TensorList(tensors));
}

std::vector<at::Tensor> evaluate(const StepProgram& program, const std::vector<at::Tensor>& tensors) {
  const auto& step = program.description;
  const auto arguments = arguments_of(step.evaluation, step, tensors);
  const auto results = run(program.evaluation, arguments);
  OwnMemory own(arguments);
  std::vector<at::Tensor> outputs(step.output_names.size());
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Place& place = step.evaluation.results[i];
    if (place.kind == Kind::output) outputs[place.index] = own(results[i]);
    if (place.kind == Kind::buffer) tensors[position_of(place, step)].copy_(results[i]);
  }
  return outputs;
}

}  // namespace lockstep::models::compiled
