#include "parallel/output_node.hpp"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>

#include "lockstep/core/error.hpp"

namespace lockstep::parallel {
namespace {

using Tensors = std::vector<at::Tensor>;

/// Keeps the state alive for as long as a graph needs it, even if the wrapper is destroyed before backward.
struct StateHolder : torch::CustomClassHolder {
  explicit StateHolder(std::shared_ptr<DdpState> held) : state(std::move(held)) {}
  std::shared_ptr<DdpState> state;
};

struct OutputNode : torch::autograd::Function<OutputNode> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const std::shared_ptr<DdpState>& state,
                                                at::TensorList outputs) {
    context->set_materialize_grads(false);
    context->saved_data["state"] = c10::IValue::make_capsule(c10::make_intrusive<StateHolder>(state));
    Tensors copies;
    for (const auto& output : outputs) copies.push_back(output.clone());
    return copies;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto capsule = context->saved_data["state"].toCapsule();
    const auto state = static_cast<const StateHolder*>(capsule.get())->state;
    if (state->learns_graph()) {
      state->delayed_reduce_is_queued = true;
      torch::autograd::Engine::get_default_engine().queue_callback(
          [state] { state->reducer->delay_all_reduce(); });
    }
    torch::autograd::variable_list result{at::Tensor()};
    result.insert(result.end(), gradients.begin(), gradients.end());
    return result;
  }
};

}  // namespace

Tensors through_output_node(const std::shared_ptr<DdpState>& state, const Tensors& outputs) {
  Tensors with_history;
  for (const auto& output : outputs) {
    if (output.grad_fn()) with_history.push_back(output);
  }
  if (with_history.empty()) return outputs;
  const Tensors passed = OutputNode::apply(state, at::TensorList(with_history));
  Tensors result = outputs;
  auto next = passed.begin();
  for (auto& output : result) {
    if (output.grad_fn()) output = *next++;
  }
  return result;
}

}  // namespace lockstep::parallel
