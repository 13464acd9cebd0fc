#include "datasets/writers/save_folder.hpp"

#include <arrow/type.h>
#include <arrow/util/key_value_metadata.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/atomic_directory.hpp"
#include "core/json_text.hpp"
#include "datasets/arrow/arrow_conversions.hpp"
#include "datasets/arrow/batch_writer.hpp"
#include "datasets/dataset/dataset_access.hpp"
#include "datasets/table/content_hash.hpp"
#include "datasets/table/convert.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Path = std::filesystem::path;

/// The default of `datasets`.
constexpr std::int64_t kShardBytes = 500'000'000;
constexpr std::int64_t kMostShards = 99999;

std::int64_t shards_of(const ArrowDataset& dataset, std::int64_t wanted) {
  if (wanted < 0 || wanted > kMostShards) {
    throw UsageError(fmt::format("num_shards must be from 0 to {}, got {}.", kMostShards, wanted));
  }
  if (wanted > 0) return wanted;
  std::int64_t bytes = 0;
  for (const auto& [name, column] : dataset.columns())
    bytes += arrow_file::value_bytes(column, 0, column.size());
  return std::clamp<std::int64_t>(bytes / kShardBytes + 1, 1,
                                  std::clamp<std::int64_t>(dataset.num_rows(), 1, kMostShards));
}

std::string shard_name(std::int64_t shard, std::int64_t shards) {
  return fmt::format("data-{:05}-of-{:05}.arrow", shard, shards);
}

std::string state_text(const ArrowDataset& dataset, std::int64_t shards, const std::string& fingerprint) {
  OrderedJson files = OrderedJson::array();
  for (std::int64_t shard = 0; shard < shards; ++shard)
    files.push_back({{"filename", shard_name(shard, shards)}});
  OrderedJson state;
  state["_data_files"] = files;
  state["_fingerprint"] = fingerprint;
  state["_format_columns"] = nullptr;
  state["_format_kwargs"] = OrderedJson::object();
  state["_format_type"] = nullptr;
  state["_output_all_columns"] = false;
  state["_split"] = dataset.split().empty() ? OrderedJson(nullptr) : OrderedJson(dataset.split());
  return json_text(state, 2);
}

std::string info_text(const ArrowDataset& dataset) {
  OrderedJson info;
  info["citation"] = "";
  info["description"] = "";
  info["features"] = OrderedJson::parse(dataset.features().to_json());
  info["homepage"] = "";
  info["license"] = "";
  return json_text(info, 2);
}

std::shared_ptr<arrow::Field> field_of(const std::string& name, const Feature& feature);

/// Arrow's type with the names of extension types inside it.
std::shared_ptr<arrow::DataType> type_of(const Feature& feature) {
  const auto& type = feature.type();
  arrow::FieldVector fields;
  for (std::size_t index = 0; index < feature.children().size(); ++index)
    fields.push_back(field_of(type.fields()[index].name, feature.children()[index]));
  if (fields.empty()) return type.arrow();
  if (type.kind() == TypeKind::struct_) return arrow::struct_(fields);
  if (type.kind() == TypeKind::list) return arrow::list(fields.front());
  if (type.kind() == TypeKind::large_list) return arrow::large_list(fields.front());
  return arrow::fixed_size_list(fields.front(), type.width());
}

/// `datasets` stores Array2D to Array5D as extension types of its own and Json as Arrow's, and compares them
/// when it loads a file.
std::shared_ptr<arrow::Field> field_of(const std::string& name, const Feature& feature) {
  const auto field = arrow::field(name, type_of(feature));
  if (feature.kind() != Feature::Kind::other) return field;
  const auto extension = [&](const std::string& type, const std::string& metadata) {
    return field->WithMetadata(
        arrow::key_value_metadata({"ARROW:extension:name", "ARROW:extension:metadata"}, {type, metadata}));
  };
  const auto json = OrderedJson::parse(feature.json());
  const auto kind = json.value("_type", "");
  if (kind == "Json") return extension("arrow.json", "");
  if (!kind.starts_with("Array") || !json.contains("shape") || !json.contains("dtype")) return field;
  return extension("datasets.features.features." + kind + "ExtensionType",
                   json_text(OrderedJson::array({json["shape"], json["dtype"]})));
}

}  // namespace

void require_foreign(const ArrowDataset& dataset, const Path& folder) {
  const auto target = std::filesystem::weakly_canonical(folder);
  for (const auto& file : dataset.files()) {
    const auto source = std::filesystem::weakly_canonical(file);
    const auto [end, ignored] = std::mismatch(target.begin(), target.end(), source.begin(), source.end());
    if (end != target.end()) continue;
    throw UsageError("cannot save a data set to '" + folder.string() + "', because it is mapped from '" +
                     file.string() + "' in it. Save it elsewhere.");
  }
}

void write_batches(const ArrowDataset& dataset, std::int64_t batch_rows, arrow_file::BatchWriter& writer) {
  if (batch_rows < 1)
    throw UsageError(fmt::format("a record batch needs 1 row or more, got {}.", batch_rows));
  arrow_file::each_piece(
      dataset.columns(), dataset.num_rows(), batch_rows,
      [&](std::int64_t start, std::int64_t rows) { writer.write(record_batch(dataset, start, rows), rows); });
}

std::vector<ArrayPointer> record_batch(const ArrowDataset& dataset, std::int64_t start, std::int64_t rows) {
  std::vector<ArrayPointer> arrays;
  for (const auto& [name, column] : dataset.columns())
    arrays.push_back(arrow_file::rows_of(column, start, rows));
  return arrays;
}

std::shared_ptr<arrow::Schema> schema_of(const Features& features) {
  arrow::FieldVector fields;
  for (const auto& [name, feature] : features.items()) fields.push_back(field_of(name, feature));
  const OrderedJson json = {{"info", {{"features", OrderedJson::parse(features.to_json())}}}};
  return arrow::schema(std::move(fields), arrow::key_value_metadata({"huggingface"}, {json_text(json)}));
}

std::string write_file(const ArrowDataset& dataset, const Path& path, std::int64_t batch_rows,
                       decltype(arrow_file::stream_writer)& make) {
  AtomicFile file(path);
  table::ContentHash hash;
  const auto sink = [&](const void* data, std::size_t bytes) {
    file.write(data, bytes);
    hash.update(data, bytes);
  };
  const auto writer = make(sink, schema_of(dataset.features()));
  write_batches(dataset, batch_rows, *writer);
  writer->finish();
  file.commit();
  return hash.text();
}

void write_folder(const ArrowDataset& dataset, const Path& folder, const SaveOptions& options) {
  const auto shards = shards_of(dataset, options.num_shards);
  // Computed from the written files: the data set's own would read all files that the rows are from.
  table::ContentHash fingerprint;
  for (std::int64_t shard = 0; shard < shards; ++shard) {
    fingerprint.update_field(write_file(dataset.shard(shards, shard), folder / shard_name(shard, shards),
                                        options.batch_rows, arrow_file::stream_writer));
  }
  write_atomically(folder / "dataset_info.json", info_text(dataset));
  write_atomically(folder / "state.json", state_text(dataset, shards, fingerprint.text()));
}

}  // namespace lockstep
