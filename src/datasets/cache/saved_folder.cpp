#include "datasets/cache/saved_folder.hpp"

#include <algorithm>
#include <cctype>

#include "core/json.hpp"
#include "core/json_text.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson read_object(const std::filesystem::path& path) {
  OrderedJson object = read_json_document(path);
  if (!object.is_object()) throw DataError("'" + path.string() + "' is not a JSON object.");
  return object;
}

/// The names in a list; `name_of` returns an element's name, or null if it has none.
template <typename NameOf>
std::vector<std::string> names_in(const OrderedJson& object, const char* key,
                                  const std::filesystem::path& path, const NameOf& name_of) {
  const auto list = object.find(key);
  if (list == object.end() || !list->is_array())
    throw DataError(fmt::format("'{}' has no list \"{}\".", path.string(), key));
  std::vector<std::string> names;
  for (const auto& element : *list) {
    const OrderedJson name = name_of(element);
    const std::filesystem::path file = name.is_string() ? name.get<std::string>() : std::string();
    if (file.empty() || file.has_parent_path() || file == "..") {
      throw DataError(fmt::format("'{}' names '{}' in \"{}\", which is not inside its folder.", path.string(),
                                  name.is_string() ? file.string() : json_text(name), key));
    }
    names.push_back(file.string());
  }
  return names;
}

}  // namespace

SavedFolder read_saved_folder(const std::filesystem::path& folder) {
  const auto path = folder / "state.json";
  const auto state = read_object(path);
  SavedFolder saved;
  saved.files = names_in(state, "_data_files", path, [](const OrderedJson& element) {
    return element.is_object() ? element.value("filename", OrderedJson()) : OrderedJson();
  });
  if (saved.files.empty()) throw DataError("'" + path.string() + "' names no data files.");
  const auto split = state.find("_split");
  if (split != state.end() && split->is_string()) saved.split = split->get<std::string>();
  return saved;
}

std::vector<std::string> read_saved_splits(const std::filesystem::path& folder) {
  const auto path = folder / "dataset_dict.json";
  auto names =
      names_in(read_object(path), "splits", path, [](const OrderedJson& element) { return element; });
  for (const auto& name : names) {
    if (!is_split_name(name))
      throw DataError("'" + path.string() + "': '" + name + "' is not a name of a split.");
  }
  return names;
}

bool is_split_name(const std::string& name) {
  const auto fits = [](unsigned char one) {
    return std::isalnum(one) != 0 || one == '_' || one == '.' || one == '-';
  };
  return !name.empty() && name != "." && name != ".." && std::all_of(name.begin(), name.end(), fits);
}

}  // namespace lockstep
