#include "checkpoint/tensor_source.hpp"

#include <ATen/ATen.h>

#include <memory>

#include "checkpoint/safetensors_source.hpp"
#include "checkpoint/torch_file.hpp"
#include "checkpoint/torch_tensors.hpp"

namespace lockstep {

TensorSource source_of(TensorMap tensors) {
  auto shared = std::make_shared<const TensorMap>(tensors);
  return {.forms = std::move(tensors),
          .get_tensor = [shared = std::move(shared)](const std::string& name) { return shared->at(name); }};
}

TensorMap get_tensors(const TensorSource& source) {
  TensorMap tensors;
  for (const auto& entry : source.forms) tensors.emplace(entry.first, source.get_tensor(entry.first));
  return tensors;
}

TensorSource open_tensors(const std::filesystem::path& path) {
  return is_torch_file(path) ? torch_open(path) : safe_open(path);
}

}  // namespace lockstep
