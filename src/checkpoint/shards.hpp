#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::shards {

// A model in several files with an index, as Hugging Face writes and reads them. Knows nothing of LibTorch.

/// What is added to the name of the file that the model would be in alone: "model.safetensors.index.json".
inline constexpr const char* kIndexEnding = ".index.json";

/// A tensor's name and its size in bytes.
using TensorSizes = std::vector<std::pair<std::string, std::uint64_t>>;

/// Which tensors go into which file.
struct Plan {
  /// "model-00001-of-00002.safetensors" and so on, with the names of their tensors; one file without numbers
  /// where all fit into one.
  std::vector<std::pair<std::string, std::vector<std::string>>> files;
  std::uint64_t total_bytes = 0;

  bool is_sharded() const noexcept { return files.size() > 1; }
};

/// The tensors in their order, a new file where the next one would make the last file longer than `largest`
/// bytes; a tensor longer than that has a file for itself. The files of huggingface_hub's
/// split_state_dict_into_shards_factory. `file` is the name without numbers, "model.safetensors".
Plan plan(const TensorSizes& tensors, std::uint64_t largest, const std::string& file);

/// The text of the index: `metadata.total_size`, and `weight_map` from each tensor to its file.
std::string index_text(const Plan& plan);

/// The file of each tensor, by the index at `path`. Throws DataError for anything but such an index, and for
/// a file's name that leads out of the folder.
std::map<std::string, std::string> read_index(const std::filesystem::path& path);

}  // namespace lockstep::shards
