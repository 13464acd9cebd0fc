#include "models/weights_dtype.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>

#include "core/json.hpp"
#include "core/json_text.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/models/pretrained.hpp"
#include "train/model_content.hpp"

namespace lockstep::models {
namespace {

/// That of the innermost WeightsDtype of this thread.
thread_local std::optional<at::ScalarType> weights_dtype;

void set_dtype_of(const at::Tensor& tensor, at::ScalarType dtype) {
  if (tensor.is_floating_point() && tensor.scalar_type() != dtype) tensor.set_data(tensor.detach().to(dtype));
}

}  // namespace

WeightsDtype::WeightsDtype(at::ScalarType dtype) : before_(std::exchange(weights_dtype, dtype)) {}

WeightsDtype::~WeightsDtype() { weights_dtype = before_; }

void WeightsDtype::apply(torch::nn::Module& module) {
  if (!weights_dtype) return;
  const at::NoGradGuard no_grad;
  for (const auto& part : module.modules()) {
    if (std::dynamic_pointer_cast<Nf4StateImpl>(part)) continue;
    for (const auto& parameter : part->parameters(/*recurse=*/false)) set_dtype_of(parameter, *weights_dtype);
    for (const auto& buffer : part->buffers(/*recurse=*/false)) set_dtype_of(buffer, *weights_dtype);
  }
}

std::optional<at::ScalarType> python_dtype(const std::string& name) {
  if (name == "float32") return at::kFloat;
  if (name == "bfloat16") return at::kBFloat16;
  if (name == "float16") return at::kHalf;
  if (name == "float64") return at::kDouble;
  return std::nullopt;
}

at::ScalarType dtype_of_folder(const std::filesystem::path& folder) {
  const auto file = folder / kConfigFileName;
  const auto config = read_json_document(file);
  for (const char* field : {"dtype", "torch_dtype"}) {
    const auto found = config.find(field);
    if (found == config.end() || found->is_null()) continue;
    if (const auto dtype = found->is_string() ? python_dtype(found->get<std::string>()) : std::nullopt)
      return *dtype;
    throw DataError(fmt::format("{}: the field '{}' is {}, expected float32, bfloat16, float16 or float64",
                                file.string(), field, json_text(*found)));
  }
  const auto source = open_model_file(model_file_of(folder));
  for (const auto& [name, form] : source.forms)
    if (form.is_floating_point()) return form.scalar_type();
  return at::kFloat;
}

}  // namespace lockstep::models
