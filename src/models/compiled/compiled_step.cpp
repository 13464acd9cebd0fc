#include "lockstep/models/compiled_step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/core/error.hpp"
#include "models/compiled/step_function.hpp"
#include "models/compiled/step_program.hpp"

namespace lockstep::models {
namespace {

using compiled::Layout;
using compiled::StateTensor;

/// The module that holds a tensor with this dotted name, made if there is none, and the tensor's own name.
std::pair<torch::nn::Module*, std::string> holder_of(torch::nn::Module& root, const std::string& name) {
  torch::nn::Module* holder = &root;
  std::size_t begin = 0;
  for (auto dot = name.find('.'); dot != std::string::npos; dot = name.find('.', begin)) {
    const std::string part = name.substr(begin, dot - begin);
    const auto children = holder->named_children();
    const auto* const child = children.find(part);
    holder = child != nullptr ? child->get()
                              : holder->register_module(part, std::make_shared<torch::nn::Module>()).get();
    begin = dot + 1;
  }
  return {holder, name.substr(begin)};
}

std::string text_of(at::IntArrayRef sizes, at::ScalarType dtype) {
  return fmt::format("[{}] in {}", fmt::join(sizes, ", "), c10::toString(dtype));
}

/// What is wrong with a tensor for code that expects this layout; empty if nothing is.
std::string difference(const at::Tensor& tensor, const Layout& layout) {
  if (!tensor.device().is_cpu()) return "is on " + tensor.device().str() + ", and the step runs on the CPU";
  if (tensor.sizes() == at::IntArrayRef(layout.sizes) && tensor.scalar_type() == layout.dtype) return "";
  return fmt::format("is {}, and the step was exported for {}: export it for what it is to be given",
                     text_of(tensor.sizes(), tensor.scalar_type()), text_of(layout.sizes, layout.dtype));
}

at::Tensor initial(const StateTensor& entry, TensorMap& tensors, const std::filesystem::path& path) {
  const auto found = tensors.find(entry.name);
  if (found == tensors.end())
    throw DataError("'" + path.string() + "' lacks '" + entry.name + "', which step.json has");
  const auto why = difference(found->second, entry.layout);
  if (!why.empty()) throw DataError("'" + entry.name + "' in '" + path.string() + "' " + why);
  return compiled::laid_out(found->second, entry.layout);
}

}  // namespace

CompiledStepImpl::CompiledStepImpl(const std::filesystem::path& folder)
    : torch::nn::Module("CompiledStep"),
      program_(std::make_shared<const compiled::StepProgram>(compiled::load_step_program(folder))) {
  const auto path = folder / "model.safetensors";
  auto tensors = load_file(path).tensors;
  for (const auto& entry : program_->description.parameters) {
    const auto [holder, name] = holder_of(*this, entry.name);
    parameters_and_buffers_.push_back(
        holder->register_parameter(name, initial(entry, tensors, path), entry.requires_grad));
  }
  for (const auto& entry : program_->description.buffers) {
    const auto [holder, name] = holder_of(*this, entry.name);
    parameters_and_buffers_.push_back(holder->register_buffer(name, initial(entry, tensors, path)));
  }
}
CompiledStepImpl::~CompiledStepImpl() = default;

void CompiledStepImpl::check_inputs(const std::vector<at::Tensor>& inputs) const {
  const auto& expected = program_->description.inputs;
  if (inputs.size() != expected.size())
    throw UsageError(
        fmt::format("CompiledStep: expected {} inputs, but got {}", expected.size(), inputs.size()));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto why = difference(inputs[i], expected[i]);
    if (!why.empty()) throw UsageError(fmt::format("CompiledStep: input {} {}", i, why));
    if (inputs[i].requires_grad() && is_training())
      throw UsageError(
          fmt::format("CompiledStep: input {} requires gradients, which only parameters have", i));
  }
}

void CompiledStepImpl::check_state() const {
  const auto& step = program_->description;
  for (std::size_t i = 0; i < parameters_and_buffers_.size(); ++i) {
    const bool is_parameter = i < step.parameters.size();
    const auto& entry = is_parameter ? step.parameters[i] : step.buffers[i - step.parameters.size()];
    const at::Tensor& tensor = parameters_and_buffers_[i];
    const auto why = difference(tensor, entry.layout);
    if (!why.empty()) throw UsageError("CompiledStep: '" + entry.name + "' " + why);
    if (tensor.requires_grad() && !entry.requires_grad) {
      throw UsageError("CompiledStep: '" + entry.name +
                       "' requires gradients, but did not when the step was exported");
    }
  }
}

std::vector<at::Tensor> CompiledStepImpl::forward(const std::vector<at::Tensor>& inputs) {
  check_inputs(inputs);
  check_state();
  std::vector<at::Tensor> tensors = parameters_and_buffers_;
  tensors.insert(tensors.end(), inputs.begin(), inputs.end());
  return is_training() ? compiled::train_forward(program_, tensors) : compiled::evaluate(*program_, tensors);
}

const std::vector<std::string>& CompiledStepImpl::output_names() const noexcept {
  return program_->description.output_names;
}
bool CompiledStepImpl::is_exact() const noexcept { return program_->description.is_exact; }

}  // namespace lockstep::models
