#include "checkpoint/tensor_files.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "checkpoint/shards.hpp"
#include "lockstep/checkpoint/checkpoint_folder.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;
using Tensors = std::map<std::string, StoredTensor>;

constexpr const char* kEnding = ".safetensors";
/// What is copied at once.
constexpr std::uint64_t kPiece = std::uint64_t{1} << 22U;

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
  throw UsageError(fmt::format("'{}' has no safetensors file.", folder.string()));
}

/// Those of a folder with an index, whose file is given.
Tensors indexed_tensors(const fs::path& index) {
  Tensors tensors;
  std::map<std::string, std::shared_ptr<const safetensors::File>> files;
  for (const auto& [name, file_name] : shards::read_index(index)) {
    auto& file = files[file_name];
    if (!file) file = std::make_shared<const safetensors::File>(index.parent_path() / file_name);
    for (const auto& entry : file->header().entries) {
      if (entry.name == name) tensors[name] = {file, &entry};
    }
    if (tensors.contains(name)) continue;
    throw DataError(
        fmt::format("'{}' says that '{}' is in {}, but it is not.", index.string(), name, file_name));
  }
  return tensors;
}

fs::path index_of(const fs::path& source) {
  if (!fs::is_directory(source)) return source;
  const auto indexes = files_with(source, shards::kIndexEnding);
  if (!indexes.empty()) return *indexes.begin();
  throw UsageError(
      fmt::format("'{}' has no model.safetensors.index.json: there is nothing to join.", source.string()));
}

void copy(const StoredTensor& tensor, AtomicFile& file) {
  const std::uint64_t bytes = tensor.entry->end - tensor.entry->begin;
  std::string piece;
  for (std::uint64_t at = 0; at < bytes; at += kPiece) {
    piece.resize(std::min(kPiece, bytes - at));
    tensor.file->read(*tensor.entry, at, piece.data(), piece.size());
    file.write(piece);
  }
}

}  // namespace

Tensors stored_tensors(const fs::path& path) {
  if (fs::is_directory(path)) {
    const auto indexes = files_with(path, shards::kIndexEnding);
    const bool is_model = indexes.size() == 1 && !fs::exists(path / kManifestFileName);
    return is_model ? indexed_tensors(*indexes.begin()) : tensors_in(path);
  }
  if (!fs::exists(path)) throw UsageError(fmt::format("'{}' does not exist.", path.string()));
  Tensors tensors;
  add_file(tensors, path, "");
  return tensors;
}

void merge_model(const fs::path& source, const fs::path& target) {
  const auto tensors = indexed_tensors(index_of(source));
  safetensors::Header header;
  for (const auto& [name, tensor] : tensors) {
    header.entries.push_back(*tensor.entry);
    header.metadata = tensor.file->header().metadata;
  }
  AtomicFile file(target);
  file.write(safetensors::make_header(header));
  for (const auto& entry : header.entries) copy(tensors.at(entry.name), file);
  file.commit();
}

}  // namespace lockstep::launch
