#include "lockstep/models/pretrained.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/parallel/sharded_init.hpp"
#include "lockstep/train/model_files.hpp"
#include "train/model_content.hpp"
#include "train/old_names.hpp"

namespace lockstep::models {
namespace {

using Names = std::vector<std::string>;

bool begins(const std::string& name, const Names& beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](const std::string& beginning) { return name.starts_with(beginning); });
}

bool ends(const std::string& name, const Names& endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](const std::string& ending) { return name.ends_with(ending); });
}

/// Matches the model's tensors with those of the files, and records those without a counterpart.
class Match {
 public:
  Match(TensorSource source, const std::vector<NamedTensor>& tensors, const PretrainedNames& names)
      : source_(with_todays_names(std::move(source), tensors, old_names_)), names_(names) {
    for (const auto& [in_file, in_model] : old_names_) report_.renames.push_back({in_file, in_model});
    for (const auto& entry : tensors) add(entry);
    for (const auto& entry : tensors) check(entry);
    for (const auto& [name, tensor] : file_) check_use(name);
  }

  void throw_if_wrong(const std::filesystem::path& file) const { complaints_.throw_if_any(file); }

  /// Copies the values, one tensor at a time.
  PretrainedReport copy() {
    const at::NoGradGuard no_grad;
    for (const auto& target : targets_) {
      const auto value = values_.find(target.unsafeGetTensorImpl());
      if (value == values_.end()) continue;
      parallel::set_initial_values(
          target, [&](const at::Tensor& values) { values.copy_(source_.get_tensor(value->second->first)); });
    }
    return std::move(report_);
  }

 private:
  using Values = std::map<const void*, TensorMap::const_iterator>;

  void add(const NamedTensor& entry) {
    const auto* key = entry.tensor.unsafeGetTensorImpl();
    const bool is_new = std::none_of(targets_.begin(), targets_.end(),
                                     [&](const at::Tensor& other) { return other.is_same(entry.tensor); });
    if (is_new) targets_.push_back(entry.tensor);
    const auto found = find(entry.name);
    if (found == file_.end()) return;
    used_.insert(found->first);
    values_.emplace(key, found);
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
      check_new(entry);
    } else if (!fits(found->second->second, entry.tensor)) {
      check_replaced(entry, found);
    }
  }

  void check_new(const NamedTensor& entry) {
    if (begins(entry.name, names_.new_heads) || begins(entry.name, names_.replaced_heads)) {
      report_.initialized.push_back(entry.name);
    } else {
      complaints_.add(fmt::format("'{}' ({}) is missing{}", entry.name, tensor_form(entry.tensor),
                                  layers_of(entry.name)));
    }
  }

  void check_replaced(const NamedTensor& entry, Values::iterator found) {
    if (begins(entry.name, names_.replaced_heads)) {
      report_.initialized.push_back(entry.name);
      report_.unused.push_back(find(entry.name)->first);
      values_.erase(found);
    } else {
      complaints_.add(fmt::format("'{}' is {}, expected {}{}", entry.name, tensor_form(found->second->second),
                                  tensor_form(entry.tensor),
                                  sizes_of(entry.name, found->second->second, entry.tensor)));
    }
  }

  void check_use(const std::string& name) {
    if (used_.contains(name)) return;
    if (begins(name, names_.other_heads) || ends(name, names_.constants)) {
      report_.unused.push_back(name);
    } else {
      complaints_.add(fmt::format("'{}' is not part of the model{}", name, layers_of(name)));
    }
  }

  std::string_view without_prefix(std::string_view name) const {
    if (name.starts_with(names_.base_prefix)) name.remove_prefix(names_.base_prefix.size());
    return name;
  }

  /// Which fields of config.json say another size than the file's tensor has.
  std::string sizes_of(const std::string& name, const at::Tensor& value, const at::Tensor& target) const {
    const auto expected = parallel::initial_sizes(target);
    if (value.dim() != std::ssize(expected)) return {};
    const auto own = without_prefix(name);
    for (const auto& sizes : names_.sizes) {
      if (!own.starts_with(sizes.begin) || !own.ends_with(sizes.end)) continue;
      Names fields;
      for (std::size_t i = 0; i < std::min(expected.size(), sizes.fields.size()); ++i) {
        const bool differs = value.size(static_cast<std::int64_t>(i)) != expected[i];
        if (differs && !sizes.fields[i].empty()) fields.push_back(sizes.fields[i]);
      }
      return by_fields(fields);
    }
    return {};
  }

  /// The field of config.json that says how many layers of this name there are.
  std::string layers_of(const std::string& name) const {
    const auto own = without_prefix(name);
    for (const auto& [begin, field] : names_.layers) {
      if (own.starts_with(begin)) return by_fields({field});
    }
    return {};
  }

  static std::string by_fields(const Names& fields) {
    if (fields.empty()) return {};
    return fmt::format(" by '{}' of {}", fmt::join(fields, "' and '"), kConfigFileName);
  }

  static bool fits(const at::Tensor& value, const at::Tensor& target) {
    return value.sizes() == parallel::initial_sizes(target) &&
           value.is_floating_point() == target.is_floating_point();
  }

  PretrainedReport report_;
  std::vector<OldName> old_names_;
  const TensorSource source_;
  const TensorMap& file_ = source_.forms;
  const PretrainedNames& names_;
  /// Each once, in the same order on all ranks.
  std::vector<at::Tensor> targets_;
  Values values_;
  std::set<std::string> used_;
  MismatchReport complaints_;
};

}  // namespace

PretrainedReport load_pretrained(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                                 const PretrainedNames& names) {
  const auto file = model_file_of(path);
  Match match(open_model_file(file), tensors, names);
  match.throw_if_wrong(file);
  return match.copy();
}

void save_pretrained(const std::filesystem::path& folder, const std::vector<NamedTensor>& tensors,
                     const std::string& config) {
  write_model(folder, tensors);
  write_atomically(folder / kConfigFileName, config);
}

}  // namespace lockstep::models
