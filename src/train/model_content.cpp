#include "train/model_content.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>

#include "checkpoint/safetensors_source.hpp"
#include "checkpoint/shards.hpp"
#include "core/file_system.hpp"
#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "parallel/module_agreement.hpp"
#include "train/old_names.hpp"

namespace lockstep {
namespace {

constexpr int kComplaintsShown = 8;

TensorSource open_parts(const std::filesystem::path& index) {
  std::set<std::string> files;
  for (const auto& entry : shards::read_index(index)) files.insert(entry.second);
  TensorSource all;
  std::map<std::string, GetTensor> readers;
  for (const auto& name : files) {
    TensorSource part = open_tensors(index.parent_path() / name);
    for (const auto& entry : part.forms) readers.emplace(entry.first, part.get_tensor);
    all.forms.merge(part.forms);
    all.metadata.merge(part.metadata);
    // merge() leaves entries whose names exist already.
    if (part.forms.empty()) continue;
    throw DataError(fmt::format("{}: the tensor '{}' is in two files, one of them {}", index.string(),
                                part.forms.begin()->first, name));
  }
  all.get_tensor = [readers = std::move(readers)](const std::string& name) { return readers.at(name)(name); };
  return all;
}

const void* identity(const NamedTensor& entry) { return entry.tensor.unsafeGetTensorImpl(); }

bool same_form(const at::Tensor& one, const at::Tensor& other) {
  return one.scalar_type() == other.scalar_type() && one.sizes() == other.sizes();
}

bool has_name(const std::vector<NamedTensor>& tensors, const std::string& name) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [&](const NamedTensor& entry) { return entry.name == name; });
}

std::vector<NamedTensor> with_names(const std::vector<NamedTensor>& tensors,
                                    const std::vector<std::string>& names) {
  const std::set<std::string> wanted(names.begin(), names.end());
  std::vector<NamedTensor> result;
  for (const auto& entry : parallel::without_repeats(tensors)) {
    if (wanted.contains(entry.name)) result.push_back(entry);
  }
  return result;
}

/// Whether this is model.safetensors or, for example, model-00001-of-00002.safetensors.
bool is_model_file(const std::string& name) {
  static const std::regex kForm(R"(model(-\d{5}-of-\d{5})?\.safetensors)");
  return std::regex_match(name, kForm);
}

void remove_others(const std::filesystem::path& folder, const shards::Plan& plan) {
  std::set<std::string> written;
  for (const auto& entry : plan.files) written.insert(entry.first);
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (is_model_file(name) && !written.contains(name)) std::filesystem::remove(entry.path());
  }
}

TensorMap map_of(const std::vector<NamedTensor>& tensors) {
  TensorMap result;
  for (const auto& entry : tensors) result.emplace(entry.name, entry.tensor);
  return result;
}

shards::Plan plan_of(const std::vector<NamedTensor>& forms, std::uint64_t max_shard_bytes) {
  shards::TensorSizes sizes;
  for (const auto& entry : parallel::without_repeats(forms))
    sizes.emplace_back(entry.name, entry.tensor.nbytes());
  return shards::plan(sizes, max_shard_bytes, kModelFileName);
}

}  // namespace

std::filesystem::path model_file_of(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return path;
  // In the order of transformers. The last two are pickles of Python's torch.save.
  for (const auto& name : {std::string(kModelFileName), std::string(kModelFileName) + shards::kIndexEnding,
                           std::string(kTorchFileName), std::string(kTorchFileName) + shards::kIndexEnding}) {
    if (std::filesystem::exists(path / name)) return path / name;
  }
  return path / kModelFileName;
}

TensorSource open_model_file(const std::filesystem::path& file) {
  return file.string().ends_with(shards::kIndexEnding) ? open_parts(file) : open_tensors(file);
}

std::map<const void*, const at::Tensor*> match_tensors(const TensorMap& content,
                                                       const std::vector<NamedTensor>& tensors) {
  std::map<const void*, const at::Tensor*> found;
  for (const auto& entry : tensors) {
    const auto match = content.find(entry.name);
    if (match != content.end()) found.emplace(identity(entry), &match->second);
  }
  return found;
}

GetTensor get_from(const std::vector<NamedTensor>& tensors) {
  return [all = map_of(tensors)](const std::string& name) { return all.at(name); };
}

std::string tensor_form(const at::Tensor& tensor) {
  return c10::str(tensor.scalar_type(), ' ', tensor.sizes());
}

void MismatchReport::add(const std::string& text) {
  if (++count_ <= kComplaintsShown) text_ += (count_ == 1 ? "" : "; ") + text;
}

void MismatchReport::throw_if_any(const std::filesystem::path& file) const {
  if (count_ == 0) return;
  const int more = count_ - kComplaintsShown;
  throw DataError(fmt::format("{} does not fit the model: {}{}", file.string(), text_,
                              more > 0 ? fmt::format("; and {} more", more) : ""));
}

FileDigest write_model_file(const std::filesystem::path& path, const std::vector<NamedTensor>& forms,
                            const GetTensor& get_tensor) {
  return save_file_from({map_of(parallel::without_repeats(forms)), get_tensor, {{"format", "pt"}}}, path);
}

std::vector<std::string> model_file_order(const std::vector<NamedTensor>& forms,
                                          std::uint64_t max_shard_bytes) {
  std::vector<std::string> order;
  for (const auto& [file, names] : plan_of(forms, max_shard_bytes).files) {
    const auto in_file = names_in_file_order(map_of(with_names(forms, names)));
    order.insert(order.end(), in_file.begin(), in_file.end());
  }
  return order;
}

void write_model(const std::filesystem::path& folder, const std::vector<NamedTensor>& forms,
                 const GetTensor& get_tensor, std::uint64_t max_shard_bytes) {
  file_system::make_folders(folder);
  const auto plan = plan_of(forms, max_shard_bytes);
  const auto index = folder / (std::string(kModelFileName) + shards::kIndexEnding);
  std::error_code ignored;
  std::filesystem::remove(index, ignored);
  for (const auto& [file, names] : plan.files)
    write_model_file(folder / file, with_names(forms, names), get_tensor);
  remove_others(folder, plan);
  // transformers would put an adapter that is left there on top of the model.
  for (const char* left : {parallel::kAdapterConfigFile, parallel::kAdapterFile})
    std::filesystem::remove(folder / left, ignored);
  if (plan.is_sharded()) write_atomically(index, shards::index_text(plan));
}

void write_adapter(const std::filesystem::path& folder, const parallel::AdapterForm& adapter,
                   const std::vector<NamedTensor>& forms, const GetTensor& get_tensor) {
  file_system::make_folders(folder);
  write_model_file(folder / parallel::kAdapterFile, forms, get_tensor);
  write_atomically(folder / parallel::kAdapterConfigFile, adapter.config);
}

bool is_adapter_file(const std::filesystem::path& path) {
  std::error_code failure;
  if (!std::filesystem::is_directory(path, failure)) return path.filename() == parallel::kAdapterFile;
  return std::filesystem::exists(path / parallel::kAdapterFile, failure) &&
         !std::filesystem::exists(model_file_of(path), failure);
}

TensorSource open_for_model(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors) {
  const auto file = model_file_of(path);
  std::vector<OldName> old_names;
  TensorSource content = with_todays_names(open_model_file(file), tensors, old_names);
  const auto found = match_tensors(content.forms, tensors);
  MismatchReport complaints;
  for (const auto& entry : tensors) {
    const auto match = found.find(identity(entry));
    if (match == found.end()) {
      complaints.add(fmt::format("'{}' ({}) is missing", entry.name, tensor_form(entry.tensor)));
    } else if (!same_form(*match->second, entry.tensor)) {
      complaints.add(fmt::format("'{}' is {}, expected {}", entry.name, tensor_form(*match->second),
                                 tensor_form(entry.tensor)));
    }
  }
  for (const auto& [name, tensor] : content.forms) {
    if (!has_name(tensors, name))
      complaints.add(fmt::format("'{}' ({}) is not part of the model", name, tensor_form(tensor)));
  }
  complaints.throw_if_any(file);
  return content;
}

}  // namespace lockstep
