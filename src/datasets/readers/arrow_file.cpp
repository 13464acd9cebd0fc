#include "datasets/readers/readers.hpp"

#include <arrow/extension_type.h>
#include <arrow/type.h>
#include <arrow/util/key_value_metadata.h>

#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "core/json.hpp"
#include "core/json_text.hpp"
#include "datasets/arrow/arrow_conversions.hpp"
#include "datasets/arrow/mapped_file.hpp"
#include "datasets/arrow/stream_reader.hpp"
#include "datasets/cache/cache_entry.hpp"
#include "datasets/cache/saved_folder.hpp"
#include "datasets/dataset/dataset_access.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::readers {
namespace {

using OrderedJson = nlohmann::ordered_json;
using FilePointer = std::shared_ptr<arrow_file::MappedFile>;

/// Features in the order of the file's columns. Throws DataError if they do not match the columns.
Features ordered(const Features& features, const std::vector<Field>& fields, const std::string& name) {
  const std::map<std::string, Feature> by_name(features.items().begin(), features.items().end());
  std::vector<std::pair<std::string, Feature>> items;
  for (const auto& field : fields) {
    const auto found = by_name.find(field.name);
    const bool known = found != by_name.end();
    if (!known || !(found->second.type() == field.type)) {
      throw DataError("'" + name + "': its features do not fit its column '" + field.name + "' of the type " +
                      field.type.text() +
                      (known ? ": they say " + found->second.type().text() : std::string()) +
                      ". Write the data set again with its own features.");
    }
    items.push_back(*found);
  }
  return Features(std::move(items));
}

ArrowDataset dataset_of(arrow_file::FileTable table, const std::string& name, const FilePointer& file) {
  auto state = std::make_shared<DatasetAccess::State>();
  state->features = features_of(table.schema, name);
  state->rows = table.rows;
  for (std::size_t index = 0; index < table.columns.size(); ++index) {
    const auto& field = table.schema.fields[index];
    const table::SourceFiles source_files{{{file, field.name}}};
    auto data = std::make_shared<const ColumnData>(field.type, std::move(table.columns[index]),
                                                   std::make_shared<const table::SourceFiles>(source_files));
    state->columns.emplace_back(field.name, Column(std::move(data)));
  }
  return DatasetAccess::make(std::move(state));
}

/// The features in the folder's dataset_info.json, which may be newer than those in the files.
std::optional<Features> folder_features(const std::filesystem::path& folder, const ArrowDataset& dataset) {
  const auto path = folder / "dataset_info.json";
  if (!std::filesystem::exists(path)) return std::nullopt;
  const auto info = read_json_document(path);
  if (!info.is_object() || !info.contains("features") || !info["features"].is_object()) return std::nullopt;
  const auto fields = dataset.features().fields();
  try {
    return ordered(Features::from_json(json_text(info["features"]), fields), fields, path.string());
  } catch (const UsageError& error) {
    throw DataError("'" + path.string() + "': " + error.what());
  }
}

/// The type of a column that Parquet makes of one of this type: it knows neither seconds nor date64.
DataType type_in_parquet(const DataType& type) {
  return arrow_file::with_parts(type, [](const DataType& part) {
    if (part.kind() == TypeKind::date64) return DataType(TypeKind::date32);
    return part.unit() == "s" && part.kind() != TypeKind::duration
               ? DataType::temporal(part.kind(), "ms", part.zone())
               : part;
  });
}

Feature parse_feature(const Field& field, const OrderedJson& stored) {
  OrderedJson one = OrderedJson::object();
  one[field.name] = stored;
  return Features::from_json(json_text(one), {field})[field.name];
}

/// Name and metadata of the field's extension type; empty if it has none.
std::pair<std::string, std::string> extension_of(const arrow::Field& field) {
  if (field.type()->id() == arrow::Type::EXTENSION) {
    const auto& type = static_cast<const arrow::ExtensionType&>(*field.type());
    return {type.extension_name(), type.Serialize()};
  }
  const auto& metadata = field.metadata();
  if (!metadata || !metadata->Contains("ARROW:extension:name")) return {};
  const auto text = metadata->Get("ARROW:extension:metadata");
  return {*metadata->Get("ARROW:extension:name"), text.ok() ? *text : std::string()};
}

/// What `datasets` makes of an extension type; nothing if it does not know it.
std::optional<OrderedJson> kind_of_extension(const arrow::Field& field) {
  const auto [name, metadata] = extension_of(field);
  if (name == "arrow.json") return OrderedJson{{"_type", "Json"}};
  constexpr std::string_view kBegin = "datasets.features.features.Array", kEnd = "ExtensionType";
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd) || name.size() <= kBegin.size() + kEnd.size())
    return std::nullopt;
  const auto shape = OrderedJson::parse(metadata, nullptr, /*allow_exceptions=*/false);
  if (!shape.is_array() || shape.size() != 2) return std::nullopt;
  const auto kind = "Array" + name.substr(kBegin.size(), name.size() - kBegin.size() - kEnd.size());
  return OrderedJson{{"shape", shape[0]}, {"dtype", shape[1]}, {"_type", kind}};
}

/// The feature of a column without a stored one: of its own type, as `datasets` infers it.
Feature infer_feature(const Field& field, const arrow::Field& stored) {
  const auto& type = field.type;
  if (const auto kind = kind_of_extension(stored)) {
    const auto feature = parse_feature(field, *kind);
    return feature.type() == type ? feature : Feature(type);
  }
  const auto& inner = *stored.type();
  const auto child = [&](int number) {
    return infer_feature({type.fields()[static_cast<std::size_t>(number)].name,
                          type.fields()[static_cast<std::size_t>(number)].type},
                         *inner.field(number));
  };
  if (type.fields().empty() || static_cast<std::size_t>(inner.num_fields()) != type.fields().size())
    return Feature(type);
  if (type.kind() == TypeKind::list || type.kind() == TypeKind::large_list)
    return Feature::list(child(0), -1, type.kind() == TypeKind::large_list);
  if (type.kind() == TypeKind::fixed_size_list) return Feature::list(child(0), type.width());
  if (type.kind() != TypeKind::struct_) return Feature(type);
  std::vector<std::pair<std::string, Feature>> items;
  for (int number = 0; number < inner.num_fields(); ++number)
    items.emplace_back(type.fields()[static_cast<std::size_t>(number)].name, child(number));
  return Feature::struct_(Features(std::move(items)));
}

/// The stored feature of a column. As in `datasets`, a column that others have added or given another type
/// since is of its own type.
Feature feature_of(const Field& field, const arrow::Field& own, const OrderedJson& stored, bool is_parquet) {
  const auto found = stored.find(field.name);
  if (found == stored.end()) return infer_feature(field, own);
  const auto feature = parse_feature(field, *found);
  const bool fits =
      feature.type() == field.type || (is_parquet && type_in_parquet(feature.type()) == field.type);
  return fits ? feature : infer_feature(field, own);
}

/// The features that the schema stores, as `datasets` does; an empty object if it stores none.
OrderedJson stored_features(const arrow_file::FileSchema& schema, const std::string& name) {
  const auto found = schema.metadata.find("huggingface");
  if (found == schema.metadata.end()) return OrderedJson::object();
  const auto json =
      json_tree::parse<OrderedJson>(found->second, "'" + name + "': the entry 'huggingface' of its schema");
  if (!json.is_object() || !json.contains("info") || !json["info"].is_object()) return OrderedJson::object();
  const auto& info = json["info"];
  return info.contains("features") && info["features"].is_object() ? info["features"] : OrderedJson::object();
}

}  // namespace

Features features_of(const arrow_file::FileSchema& schema, const std::string& name, bool is_parquet) try {
  const auto stored = stored_features(schema, name);
  std::vector<std::pair<std::string, Feature>> items;
  for (std::size_t index = 0; index < schema.fields.size(); ++index) {
    const auto& field = schema.fields[index];
    const auto& own = *schema.arrow->field(static_cast<int>(index));
    items.emplace_back(field.name, feature_of(field, own, stored, is_parquet));
  }
  return Features(std::move(items));
} catch (const UsageError& error) {
  throw DataError("'" + name + "': " + error.what());
}

ArrowDataset read_arrow_file(const std::filesystem::path& path, bool trusted) {
  const auto file = std::make_shared<arrow_file::MappedFile>(path);
  if (file->size() == 0) throw DataError("'" + path.string() + "' is not a valid Arrow file: it is empty.");
  return dataset_of(arrow_file::read_arrow(file, path.string(), trusted), path.string(), file);
}

ArrowDataset read_arrow_folder(const std::filesystem::path& folder, bool trusted) {
  const auto saved = read_saved_folder(folder);
  std::vector<ArrowDataset> parts;
  for (const auto& file : saved.files) parts.push_back(read_arrow_file(folder / file, trusted));
  auto whole = DatasetAccess::copy(parts.size() == 1 ? parts.front() : ArrowDataset::concatenate(parts));
  whole->split = saved.split;
  if (auto features = folder_features(folder, parts.front())) whole->features = *std::move(features);
  return DatasetAccess::make(std::move(whole));
}

ArrowDataset load_shards(const std::vector<std::filesystem::path>& files) {
  LoadOptions options;
  options.format = FileFormat::arrow;
  // Written by Lockstep, complete according to their names, and of the sizes in the manifest.
  options.trusted = true;
  return ArrowDataset::load(files, options);
}

ArrowDataset open_entry(const std::filesystem::path& entry) {
  const auto manifest = read_manifest(entry);
  if (!manifest) throw DataError("the cache entry '" + entry.string() + "' was removed meanwhile.");
  std::vector<std::filesystem::path> files;
  for (const auto& shard : manifest->shards) files.push_back(entry / shard.file_name());
  return load_shards(files);
}

}  // namespace lockstep::readers
