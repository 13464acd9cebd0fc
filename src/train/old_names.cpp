#include "train/old_names.hpp"

#include <algorithm>
#include <map>

namespace lockstep {
namespace {

const std::vector<OldName>& old_names() {
  static const std::vector<OldName> names = {{"LayerNorm.gamma", "LayerNorm.weight"},
                                             {"LayerNorm.beta", "LayerNorm.bias"}};
  return names;
}

/// The name with the ending `to` instead of `from`; empty if it does not end so.
std::string with_ending(const std::string& name, const std::string& from, const std::string& to) {
  return name.ends_with(from) ? name.substr(0, name.size() - from.size()) + to : std::string();
}

}  // namespace

TensorSource with_todays_names(TensorSource source, const std::vector<NamedTensor>& tensors,
                               std::vector<OldName>& found) {
  std::map<std::string, std::string> in_file;
  for (const auto& rename : old_names()) {
    const bool is_own = std::any_of(tensors.begin(), tensors.end(), [&](const NamedTensor& entry) {
      return entry.name.ends_with(rename.in_file);
    });
    for (auto place = source.forms.begin(); !is_own && place != source.forms.end();) {
      const std::string name = with_ending(place->first, rename.in_file, rename.in_model);
      const auto here = place++;
      if (name.empty() || source.forms.contains(name)) continue;
      in_file[name] = here->first;
      if (found.empty() || found.back() != rename) found.push_back(rename);
      auto node = source.forms.extract(here);
      node.key() = name;
      source.forms.insert(std::move(node));
    }
  }
  if (in_file.empty()) return source;
  source.get_tensor = [get = std::move(source.get_tensor),
                       in_file = std::move(in_file)](const std::string& name) {
    const auto old = in_file.find(name);
    return get(old == in_file.end() ? name : old->second);
  };
  return source;
}

}  // namespace lockstep
