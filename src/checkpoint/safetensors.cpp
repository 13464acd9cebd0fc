#include "lockstep/checkpoint/safetensors.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>

#include "checkpoint/safetensors_source.hpp"
#include "checkpoint/tensor_source.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

FileDigest save_file(const TensorMap& tensors, const std::filesystem::path& path,
                     const TensorMetadata& metadata) {
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined() || !tensor.is_meta()) continue;
    throw UsageError(fmt::format(
        "cannot write tensor '{}' into a safetensors file: it is a meta tensor, which has no data.", name));
  }
  TensorSource source = source_of(tensors);
  source.metadata = metadata;
  return save_file_from(source, path);
}

SafeTensors load_file(const std::filesystem::path& path) {
  TensorSource source = safe_open(path);
  return {.tensors = get_tensors(source), .metadata = std::move(source.metadata)};
}

}  // namespace lockstep
