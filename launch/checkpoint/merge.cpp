#include "checkpoint/merge.hpp"

#include <algorithm>

#include "checkpoint/shards.hpp"
#include "checkpoint/tensor_files.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kPiece = std::uint64_t{1} << 22U;

fs::path index_of(const fs::path& source) {
  if (!fs::is_directory(source)) return source;
  for (const auto& entry : fs::directory_iterator(source)) {
    if (entry.path().string().ends_with(shards::kIndexEnding)) return entry.path();
  }
  throw UsageError("'" + source.string() +
                   "' has no model.safetensors.index.json: there is nothing to join.");
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
