#include "lockstep/models/script_model.hpp"

#include <torch/csrc/jit/serialization/import.h>

#include <set>

#include "lockstep/core/error.hpp"
#include "lockstep/models/model_file.hpp"

namespace lockstep::models {

torch::jit::Module load_torch_script(const std::filesystem::path& path, const at::Device& device) {
  require_kind(path, ModelFileKind::torch_script);
  try {
    return torch::jit::load(path.string(), device);
  } catch (const c10::Error& error) {
    throw DataError("'" + path.string() +
                    "' cannot be loaded as TorchScript: " + error.what_without_backtrace());
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
