#include "lockstep/models/script_model.hpp"

#include <fmt/format.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/models/model_file.hpp"

namespace lockstep::models {

torch::jit::Module load_torch_script(const std::filesystem::path& path, const at::Device& device) {
  require_kind(path, ModelFileKind::torch_script);
  try {
    return torch::jit::load(path.string(), device);
  } catch (const c10::Error& error) {
    throw DataError(fmt::format("'{}' cannot be loaded as TorchScript: {}", path.string(),
                                error.what_without_backtrace()));
  }
}

at::Tensor main_tensor(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor();
  if (value.isTuple() && !value.toTupleRef().elements().empty())
    return main_tensor(value.toTupleRef().elements()[0]);
  if (value.isGenericDict()) {
    const auto found = value.toGenericDict().find("logits");
    if (found != value.toGenericDict().end()) return main_tensor(found->value());
  }
  throw DataError("the TorchScript module returned a " + value.tagKind() +
                  ": expected a tensor, a tuple that begins with one, or a dictionary with 'logits'");
}

std::size_t ScriptModel::inputs() const {
  const auto& arguments = module_.get_method("forward").function().getSchema().arguments();
  return static_cast<std::size_t>(std::count_if(arguments.begin(), arguments.end(), [](const auto& argument) {
    return c10::TensorType::get()->isSubtypeOf(*argument.type());
  }));
}

void ScriptModel::to(at::ScalarType dtype) {
  const auto convert = [&](at::Tensor tensor) {
    if (tensor.is_floating_point()) tensor.set_data(tensor.to(dtype));
  };
  for (const auto& parameter : module_.parameters()) convert(parameter);
  for (const auto& buffer : module_.buffers()) convert(buffer);
}

at::Tensor ScriptModel::forward(const std::vector<at::Tensor>& inputs) {
  const auto count = static_cast<std::ptrdiff_t>(std::min(inputs.size(), this->inputs()));
  return main_tensor(module_.forward({inputs.begin(), inputs.begin() + count}));
}

at::Tensor ScriptModel::check_fits(const std::vector<at::Tensor>& inputs, at::IntArrayRef expected,
                                   const std::string& what) {
  const at::NoGradGuard no_grad;
  const bool trains = module_.hasattr("training") && is_training();
  const auto refuse = [&](const std::string& why) {
    train(trains);
    throw UsageError(fmt::format("{}: {}", what, why));
  };
  at::Tensor result;
  eval();
  try {
    result = forward(inputs);
  } catch (const c10::Error& error) {
    refuse(error.what_without_backtrace());
  } catch (const std::runtime_error& error) {
    refuse(error.what());
  }
  train(trains);
  const bool fits = std::equal(expected.begin(), expected.end(), result.sizes().begin(), result.sizes().end(),
                               [](auto wanted, auto size) { return wanted == -1 || wanted == size; });
  if (fits) return result;
  throw UsageError(fmt::format("{}: expected a result of [{}] for [{}], but it returns [{}]", what,
                               fmt::join(expected, ", "), fmt::join(inputs.front().sizes(), ", "),
                               fmt::join(result.sizes(), ", ")));
}

void ScriptModel::save(const std::filesystem::path& path) const {
  std::ostringstream bytes;
  module_.save(bytes);
  write_atomically(path, bytes.view());
}

std::vector<at::Tensor> ScriptModel::parameters() const {
  std::vector<at::Tensor> trained;
  std::set<const void*> seen;
  for (const auto& parameter : module_.parameters()) {
    if (parameter.requires_grad() && seen.insert(parameter.unsafeGetTensorImpl()).second)
      trained.push_back(parameter);
  }
  return trained;
}

}  // namespace lockstep::models
