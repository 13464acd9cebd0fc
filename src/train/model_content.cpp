#include "model_content.hpp"

#include <set>
#include <sstream>

#include "../checkpoint/shards.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/train/model_files.hpp"

namespace lockstep {
namespace {

constexpr int kComplaintsShown = 8;

SafeTensors load_parts(const std::filesystem::path& index) {
  std::set<std::string> files;
  for (const auto& entry : shards::read_index(index)) files.insert(entry.second);
  SafeTensors all;
  for (const auto& name : files) {
    SafeTensors part = load_file(index.parent_path() / name);
    all.tensors.merge(part.tensors);
    all.metadata.merge(part.metadata);
    // A merge leaves behind what is there already.
    if (part.tensors.empty()) continue;
    throw DataError(index.string() + ": the tensor '" + part.tensors.begin()->first +
                    "' is in two files, one of them " + name);
  }
  return all;
}

}  // namespace

std::filesystem::path model_file_of(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return path;
  const auto index = path / (std::string(kModelFileName) + shards::kIndexEnding);
  return std::filesystem::exists(index) ? index : path / kModelFileName;
}

SafeTensors load_model_file(const std::filesystem::path& file) {
  return file.string().ends_with(shards::kIndexEnding) ? load_parts(file) : load_file(file);
}

std::string tensor_form(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.scalar_type() << ' ' << tensor.sizes();
  return text.str();
}

void Complaints::add(const std::string& text) {
  if (++count_ <= kComplaintsShown) text_ += (count_ == 1 ? "" : "; ") + text;
}

void Complaints::throw_if_any(const std::filesystem::path& file) const {
  if (count_ == 0) return;
  const int more = count_ - kComplaintsShown;
  throw DataError(file.string() + " does not fit the model: " + text_ +
                  (more > 0 ? "; and " + std::to_string(more) + " more" : ""));
}

}  // namespace lockstep
