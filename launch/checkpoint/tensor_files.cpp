#include "checkpoint/tensor_files.hpp"

#include <set>

#include "checkpoint/shards.hpp"
#include "lockstep/checkpoint/checkpoint_folder.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;
using Tensors = std::map<std::string, StoredTensor>;

constexpr const char* kEnding = ".safetensors";

void add_file(Tensors& tensors, const fs::path& path, const std::string& prefix) {
  const auto file = std::make_shared<const safetensors::File>(path);
  for (const auto& entry : file->header().entries) tensors[prefix + entry.name] = {file, &entry};
}

std::set<fs::path> files_with(const fs::path& folder, const std::string& ending) {
  std::set<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().ends_with(ending)) found.insert(entry.path());
  }
  return found;
}

Tensors tensors_in(const fs::path& folder) {
  Tensors tensors;
  const auto files = files_with(folder, kEnding);
  for (const auto& file : files)
    add_file(tensors, file, files.size() == 1 ? "" : file.stem().string() + ": ");
  if (!files.empty()) return tensors;
  throw UsageError("'" + folder.string() + "' has no safetensors file.");
}

}  // namespace

Tensors indexed_tensors(const fs::path& index) {
  Tensors tensors;
  std::map<std::string, std::shared_ptr<const safetensors::File>> files;
  for (const auto& [name, file_name] : shards::read_index(index)) {
    auto& file = files[file_name];
    if (!file) file = std::make_shared<const safetensors::File>(index.parent_path() / file_name);
    for (const auto& entry : file->header().entries) {
      if (entry.name == name) tensors[name] = {file, &entry};
    }
    if (!tensors.contains(name))
      throw DataError("'" + index.string() + "' says that '" + name + "' is in " + file_name +
                      ", but it is not.");
  }
  return tensors;
}

Tensors stored_tensors(const fs::path& path) {
  if (fs::is_directory(path)) {
    const auto indexes = files_with(path, shards::kIndexEnding);
    const bool is_model = indexes.size() == 1 && !fs::exists(path / kManifestFileName);
    return is_model ? indexed_tensors(*indexes.begin()) : tensors_in(path);
  }
  if (!fs::exists(path)) throw UsageError("'" + path.string() + "' does not exist.");
  Tensors tensors;
  add_file(tensors, path, "");
  return tensors;
}

}  // namespace lockstep::launch
