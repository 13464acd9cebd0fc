#include "lockstep/models/pretrained.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string_view>

#include "data/tokenizer/json_file.hpp"
#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/train/model_files.hpp"

namespace lockstep::models {
namespace {

constexpr const char* kIndexFileName = "model.safetensors.index.json";
constexpr std::size_t kNamesShown = 8;

using Names = std::vector<std::string>;

bool begins(const std::string& name, const Names& beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](const std::string& beginning) { return name.starts_with(beginning); });
}

bool ends(const std::string& name, const Names& endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](const std::string& ending) { return name.ends_with(ending); });
}

/// The files that an index names. They lie beside it: a path that leads elsewhere is refused.
std::set<std::string> files_of_index(const std::filesystem::path& index) {
  const auto json = tokenizer::parse_json(tokenizer::read_text_file(index), index.string());
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (map == json.end() || !map->is_object() || map->empty()) {
    throw DataError(index.string() + " has no 'weight_map' that says which file holds which tensor");
  }
  std::set<std::string> files;
  for (const auto& [name, file] : map->items()) {
    const bool plain = file.is_string() && !file.get<std::string>().empty() &&
                       file.get<std::string>().find('/') == std::string::npos;
    if (!plain)
      throw DataError(index.string() + ": the file of '" + name + "' must be a name without folders");
    files.insert(file.get<std::string>());
  }
  return files;
}

TensorMap read_all(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return load_file(path).tensors;
  if (std::filesystem::exists(path / kModelFileName)) return load_file(path / kModelFileName).tensors;
  if (!std::filesystem::exists(path / kIndexFileName)) {
    throw DataError(path.string() + " has neither " + kModelFileName + " nor " + kIndexFileName);
  }
  TensorMap all;
  for (const auto& file : files_of_index(path / kIndexFileName)) {
    for (auto& [name, tensor] : load_file(path / file).tensors) {
      if (!all.emplace(name, tensor).second) {
        throw DataError(path.string() + ": the tensor '" + name + "' is in two files, one of them " + file);
      }
    }
  }
  return all;
}

/// Finds the model's tensors in the files' and keeps account of what has no counterpart.
class Match {
 public:
  Match(const TensorMap& file, const std::vector<NamedTensor>& tensors, const PretrainedNames& names)
      : file_(file), names_(names) {
    for (const auto& entry : tensors) add(entry);
    for (const auto& entry : tensors) check(entry);
    for (const auto& [name, tensor] : file) check_use(name);
  }

  void throw_if_wrong(const std::filesystem::path& path) const {
    if (complaints_.empty()) return;
    std::string text;
    for (std::size_t i = 0; i < std::min(complaints_.size(), kNamesShown); ++i) {
      text += (i == 0 ? "" : "; ") + complaints_[i];
    }
    const std::size_t more = complaints_.size() - std::min(complaints_.size(), kNamesShown);
    if (more > 0) text += "; and " + std::to_string(more) + " more";
    throw DataError(path.string() + " does not fit the model: " + text);
  }

  PretrainedReport copy() {
    const at::NoGradGuard no_grad;
    for (const auto& [target, value] : values_) targets_.at(target).detach().copy_(*value);
    return std::move(report_);
  }

 private:
  void add(const NamedTensor& entry) {
    const auto* key = entry.tensor.unsafeGetTensorImpl();
    targets_.emplace(key, entry.tensor);
    const auto found = find(entry.name);
    if (found == file_.end()) return;
    used_.insert(found->first);
    values_.emplace(key, &found->second);
  }

  TensorMap::const_iterator find(const std::string& name) const {
    const auto& prefix = names_.base_prefix;
    auto found = file_.find(name);
    if (found != file_.end() || prefix.empty()) return found;
    return file_.find(name.starts_with(prefix) ? name.substr(prefix.size()) : prefix + name);
  }

  void check(const NamedTensor& entry) {
    const auto found = values_.find(entry.tensor.unsafeGetTensorImpl());
    if (found == values_.end()) {
      if (begins(entry.name, names_.new_heads)) {
        report_.initialized.push_back(entry.name);
      } else {
        complaints_.push_back("'" + entry.name + "' (" + form_of(entry.tensor) + ") is missing");
      }
    } else if (!fits(*found->second, entry.tensor)) {
      complaints_.push_back("'" + entry.name + "' is " + form_of(*found->second) + ", expected " +
                            form_of(entry.tensor));
    }
  }

  void check_use(const std::string& name) {
    if (used_.contains(name)) return;
    if (begins(name, names_.other_heads) || ends(name, names_.constants)) {
      report_.unused.push_back(name);
    } else {
      complaints_.push_back("'" + name + "' is not part of the model");
    }
  }

  static bool fits(const at::Tensor& value, const at::Tensor& target) {
    return value.sizes() == target.sizes() && value.is_floating_point() == target.is_floating_point();
  }

  static std::string form_of(const at::Tensor& tensor) {
    std::ostringstream text;
    text << tensor.scalar_type() << ' ' << tensor.sizes();
    return text.str();
  }

  const TensorMap& file_;
  const PretrainedNames& names_;
  std::map<const void*, at::Tensor> targets_;
  std::map<const void*, const at::Tensor*> values_;
  std::set<std::string> used_;
  Names complaints_;
  PretrainedReport report_;
};

}  // namespace

PretrainedReport load_pretrained(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                                 const PretrainedNames& names) {
  const TensorMap file = read_all(path);
  Match match(file, tensors, names);
  match.throw_if_wrong(path);
  return match.copy();
}

void save_pretrained(const std::filesystem::path& folder, const std::vector<NamedTensor>& tensors,
                     const std::string& config) {
  write_model(folder, tensors);
  AtomicFile file(folder / kConfigFileName);
  file.write(config);
  file.commit();
}

}  // namespace lockstep::models
