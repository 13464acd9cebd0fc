#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::shards {

// A model in several files with an index, in Hugging Face's format. Independent of LibTorch.

/// Appended to the name of the unsharded file: "model.safetensors.index.json".
inline constexpr const char* kIndexEnding = ".index.json";

/// A tensor's name and its size in bytes.
using TensorSizes = std::vector<std::pair<std::string, std::uint64_t>>;

/// Assignment of tensors to files.
struct Plan {
  /// "model-00001-of-00002.safetensors" and so on, with the names of their tensors; a single file has no
  /// numbers in its name.
  std::vector<std::pair<std::string, std::vector<std::string>>> files;
  std::uint64_t total_bytes = 0;

  bool is_sharded() const noexcept { return files.size() > 1; }
};

/// Assigns the tensors in order, and starts a new file when the next tensor would make the current one larger
/// than `largest` bytes; a larger tensor gets its own file. The same files as huggingface_hub's
/// split_state_dict_into_shards_factory. `file` is the name without numbers, "model.safetensors".
Plan plan(const TensorSizes& tensors, std::uint64_t largest, const std::string& file);

/// The text of the index: `metadata.total_size`, and `weight_map` from each tensor to its file.
std::string index_text(const Plan& plan);

/// The file of each tensor, from the index at `path`. Throws DataError if the index is invalid, or if a file
/// name leads outside the folder.
std::map<std::string, std::string> read_index(const std::filesystem::path& path);

}  // namespace lockstep::shards
