#include "checkpoint/torch_tensors.hpp"

#include <ATen/ATen.h>

#include <memory>

#include "checkpoint/tensor_dtypes.hpp"
#include "checkpoint/torch_file.hpp"

namespace lockstep {
namespace {

at::TensorOptions options_of(const TorchTensor& tensor) { return safetensors::scalar_type_of(tensor.dtype); }

/// Reads the tensor's range of its storage, and takes its elements from it.
at::Tensor read(const TorchFile& file, const TorchTensor& tensor) {
  at::Tensor range = at::empty({static_cast<std::int64_t>(tensor.elements)}, options_of(tensor));
  file.read(tensor, range.mutable_data_ptr());
  return range.as_strided(tensor.sizes, tensor.strides).contiguous();
}

}  // namespace

TensorSource torch_open(const std::filesystem::path& path) {
  const auto file = std::make_shared<const TorchFile>(path);
  TensorSource source;
  for (const auto& [name, tensor] : file->tensors())
    source.forms.emplace(name, at::empty(tensor.sizes, options_of(tensor).device(at::kMeta)));
  source.get_tensor = [file](const std::string& name) { return read(*file, file->tensors().at(name)); };
  return source;
}

}  // namespace lockstep
