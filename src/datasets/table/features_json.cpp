#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "core/json.hpp"
#include "core/json_text.hpp"
#include "datasets/table/check_name.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/datasets/features.hpp"

namespace lockstep {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kDeepest = 64;

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw DataError("the features are not valid: at '" + path + "': " + what + ".");
}

Feature parse(const OrderedJson& json, const std::string& path, const DataType* stored, int depth);

/// The stored type of a field, if the file's columns are known.
const DataType* field_type(const DataType* stored, const std::string& name) {
  if (stored == nullptr) return nullptr;
  for (const auto& field : stored->fields()) {
    if (field.name == name) return &field.type;
  }
  return nullptr;
}

Feature parse_structure(const OrderedJson& json, const std::string& path, const DataType* stored, int depth) {
  std::vector<std::pair<std::string, Feature>> items;
  for (const auto& [name, value] : json.items()) {
    items.emplace_back(name, parse(value, path + "." + name, field_type(stored, name), depth + 1));
  }
  return Feature::struct_(Features(std::move(items)));
}

const std::string& get_text(const OrderedJson& json, const char* field, const std::string& path) {
  const auto found = json.find(field);
  if (found == json.end() || !found->is_string()) fail(path, std::string("it has no text '") + field + "'");
  return found->get_ref<const std::string&>();
}

std::int32_t get_length(const OrderedJson& json, const std::string& path) {
  const auto found = json.find("length");
  if (found == json.end() || found->is_null()) return -1;
  if (!found->is_number_integer()) fail(path, "'length' is not an integer");
  const auto length = found->get<std::int64_t>();
  if (length != -1 && (length < 1 || length > 1 << 30)) fail(path, fmt::format("'length' is {}", length));
  return static_cast<std::int32_t>(length);
}

Feature parse_list(const OrderedJson& json, const std::string& path, const DataType* stored, int depth,
                   bool large) {
  if (!json.contains("feature")) fail(path, "the list does not say of what");
  const auto* element = stored != nullptr && stored->is_list() ? &stored->element() : nullptr;
  return Feature::list(parse(json["feature"], path + "[]", element, depth + 1), get_length(json, path),
                       large);
}

/// As in datasets before 4: a Sequence of a struct is a struct of lists.
Feature parse_sequence(const OrderedJson& json, const std::string& path, const DataType* stored, int depth) {
  const auto inner = json.find("feature");
  if (inner == json.end()) fail(path, "the sequence does not say of what");
  const bool structure = inner->is_object() && !(inner->contains("_type") && (*inner)["_type"].is_string());
  if (!structure) return parse_list(json, path, stored, depth, false);
  std::vector<std::pair<std::string, Feature>> items;
  for (const auto& [name, value] : inner->items()) {
    items.emplace_back(
        name, Feature::list(parse(value, path + "." + name, nullptr, depth + 1), get_length(json, path)));
  }
  return Feature::struct_(Features(std::move(items)));
}

Feature parse_classes(const OrderedJson& json, const std::string& path) {
  const auto found = json.find("names");
  std::vector<std::string> names;
  if (found != json.end() && found->is_array()) {
    for (const auto& name : *found) {
      if (!name.is_string()) fail(path, "a class's name is not a string");
      names.push_back(name.get<std::string>());
    }
  } else if (const auto count = json.find("num_classes");
             count != json.end() && count->is_number_unsigned()) {
    constexpr std::uint64_t kMost = 1 << 20;
    for (std::uint64_t number = 0; number < std::min(count->get<std::uint64_t>(), kMost); ++number) {
      names.push_back(std::to_string(number));
    }
  }
  return Feature::class_label(std::move(names));
}

/// Whether a column of this type may be of the kind; of kinds that are not known, any may.
bool fits_kind(const std::string& kind, const DataType& stored) {
  static const std::set<std::string, std::less<>> files = {"Audio", "Image", "Mesh",        "Nifti",
                                                           "Pdf",   "Video", "BioSequence", "BioStructure"};
  const bool is_text = stored.kind() == TypeKind::utf8 || stored.kind() == TypeKind::large_utf8;
  if (kind == "Json") return is_text;
  if (kind.starts_with("Array")) return stored.is_list();
  if (files.contains(kind) || kind.starts_with("Translation")) return stored.kind() == TypeKind::struct_;
  return true;
}

/// An unknown kind, which is kept: its storage is that of the file; for the most common kinds, that of
/// `datasets`. A column that has become another is of its own type.
Feature parse_other(const OrderedJson& json, const std::string& kind, const std::string& path,
                    const DataType* stored) {
  if (stored != nullptr) {
    return fits_kind(kind, *stored) ? Feature::other(json_text(json), *stored) : Feature(*stored);
  }
  if (kind != "Image" && kind != "Audio") fail(path, "the kind '" + kind + "' is not known");
  return Feature::other(json_text(json), DataType::struct_({{"bytes", DataType(TypeKind::binary)},
                                                            {"path", DataType(TypeKind::utf8)}}));
}

Feature parse_object(const OrderedJson& json, const std::string& path, const DataType* stored, int depth) {
  const auto found = json.find("_type");
  if (found == json.end() || !found->is_string()) return parse_structure(json, path, stored, depth);
  const auto& kind = found->get_ref<const std::string&>();
  if (kind == "Value") return Feature(DataType::named(get_text(json, "dtype", path)));
  if (kind == "ClassLabel") return parse_classes(json, path);
  if (kind == "List" || kind == "LargeList")
    return parse_list(json, path, stored, depth, kind == "LargeList");
  if (kind == "Sequence") return parse_sequence(json, path, stored, depth);
  return parse_other(json, kind, path, stored);
}

Feature parse(const OrderedJson& json, const std::string& path, const DataType* stored, int depth) {
  if (depth > kDeepest) fail(path, fmt::format("it is nested more than {} levels deep", kDeepest));
  if (json.is_object()) return parse_object(json, path, stored, depth);
  if (json.is_array() && json.size() == 1) {
    const auto* element = stored != nullptr && stored->is_list() ? &stored->element() : nullptr;
    return Feature::list(parse(json.front(), path + "[]", element, depth + 1));
  }
  fail(path, "expected a feature, but it is " + std::string(json.type_name()));
}

OrderedJson json_of(const Feature& feature);

/// Adds a member with a new name, without looking through the others.
void add_member(OrderedJson& json, const std::string& name, OrderedJson value) {
  json.get_ref<OrderedJson::object_t&>().push_back({name, std::move(value)});
}

OrderedJson json_of_list(const Feature& feature) {
  OrderedJson json;
  json["feature"] = json_of(feature.children().front());
  if (feature.type().width() != 0) json["length"] = feature.type().width();
  json["_type"] = feature.type().kind() == TypeKind::large_list ? "LargeList" : "List";
  return json;
}

OrderedJson json_of_structure(const Feature& feature) {
  OrderedJson json = OrderedJson::object();
  for (std::size_t index = 0; index < feature.children().size(); ++index)
    add_member(json, feature.type().fields()[index].name, json_of(feature.children()[index]));
  return json;
}

OrderedJson json_of(const Feature& feature) {
  switch (feature.kind()) {
    case Feature::Kind::list:
      return json_of_list(feature);
    case Feature::Kind::struct_:
      return json_of_structure(feature);
    case Feature::Kind::other:
      return OrderedJson::parse(feature.json());
    case Feature::Kind::class_label:
      return {{"names", feature.names()}, {"_type", "ClassLabel"}};
    case Feature::Kind::value:
      break;
  }
  return {{"dtype", feature.type().text()}, {"_type", "Value"}};
}

}  // namespace

Features Features::from_json(std::string_view text, const std::vector<Field>& fields) {
  const auto json = json_tree::parse<OrderedJson>(text, "the features");
  if (!json.is_object()) fail("the whole", "expected an object");
  const auto stored = DataType::struct_(fields);
  std::vector<std::pair<std::string, Feature>> items;
  try {
    for (const auto& [name, value] : json.items()) {
      items.emplace_back(name, parse(value, name, field_type(&stored, name), 0));
    }
    return Features(std::move(items));
  } catch (const UsageError& error) {
    throw DataError(std::string("the features are not valid: ") + error.what());
  }
}

std::string Features::to_json() const {
  OrderedJson json = OrderedJson::object();
  for (const auto& [name, feature] : items_) add_member(json, name, json_of(feature));
  return json_text(json);
}

}  // namespace lockstep
