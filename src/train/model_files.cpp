#include "lockstep/train/model_files.hpp"

#include <ATen/core/grad_mode.h>

#include "train/model_content.hpp"

namespace lockstep {

FileDigest write_model_file(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors) {
  return write_model_file(path, tensors, get_from(tensors));
}

void write_model(const std::filesystem::path& folder, const std::vector<NamedTensor>& tensors,
                 std::uint64_t max_shard_bytes) {
  write_model(folder, tensors, get_from(tensors), max_shard_bytes);
}

void read_model(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors) {
  const TensorMap content = get_tensors(open_for_model(path, tensors));
  const auto found = match_tensors(content, tensors);
  const at::NoGradGuard no_grad;
  for (const auto& entry : tensors)
    entry.tensor.detach().copy_(*found.at(entry.tensor.unsafeGetTensorImpl()));
}

}  // namespace lockstep
