#include <glob.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "datasets/arrow/mapped_file.hpp"
#include "datasets/arrow/stream_reader.hpp"
#include "datasets/dataset/state.hpp"
#include "lockstep/core/error.hpp"
#include "readers.hpp"

namespace lockstep {
namespace {

using Path = std::filesystem::path;
using nlohmann::json;

/// Of a compressed file, that of what is in it.
std::string ending_of(const Path& path) {
  auto ending = (readers::is_packed(path) ? path.stem() : path).extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char one) { return std::tolower(one); });
  return ending;
}

FileFormat format_by_name(const Path& path) {
  const auto ending = ending_of(path);
  if (ending == ".arrow" || ending == ".feather" || ending == ".ipc") return FileFormat::arrow;
  if (ending == ".csv" || ending == ".tsv") return FileFormat::csv;
  if (ending == ".json" || ending == ".jsonl" || ending == ".ndjson") return FileFormat::json;
  if (ending == ".txt" || ending == ".text") return FileFormat::text;
  if (ending == ".parquet") return FileFormat::parquet;
  return FileFormat::automatic;
}

FileFormat format_by_content(const Path& path) {
  const arrow_file::MappedFile file(path);
  const auto text = file.text();
  if (arrow_file::is_arrow(file)) return FileFormat::arrow;
  if (text.starts_with("PAR1")) return FileFormat::parquet;
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && (text[first] == '{' || text[first] == '[')) return FileFormat::json;
  throw DataError("'" + path.string() +
                  "': neither its name nor its first bytes tell what it is. Say so in LoadOptions::format.");
}

CsvOptions csv_options(const Path& path, const LoadOptions& options) {
  auto csv = options.csv;
  if (ending_of(path) == ".tsv" && csv.delimiter == CsvOptions{}.delimiter) csv.delimiter = '\t';
  return csv;
}

/// What decides about the rows of a text.
std::map<std::string, std::string> fields_of(const char* format, const LoadOptions& options) {
  std::map<std::string, std::string> fields;
  fields["format"] = json(format).dump();
  if (options.features) fields["features"] = options.features->to_json();
  return fields;
}

readers::RowFile csv_file(const Path& path, const LoadOptions& options) {
  const auto csv = csv_options(path, options);
  auto fields = fields_of("csv", options);
  fields["csv"] = json({{"delimiter", int{csv.delimiter}},
                        {"quote", int{csv.quote}},
                        {"header", csv.header},
                        {"column_names", csv.column_names},
                        {"null_values", csv.null_values}})
                      .dump();
  return {path, std::move(fields), [=](const Path& unpacked, readers::Types types) {
            return readers::csv_rows({unpacked, path.string()}, csv, options.features, types);
          }};
}

readers::RowFile json_file(const Path& path, const LoadOptions& options) {
  return {path, fields_of("json", options), [=](const Path& unpacked, readers::Types types) {
            return readers::json_rows({unpacked, path.string()}, options.features, types);
          }};
}

readers::RowFile parquet_file(const Path& path, const LoadOptions& options) {
  auto fields = fields_of("parquet", {});
  fields["columns"] = json(options.columns).dump();
  return {path, std::move(fields), [=](const Path& unpacked, readers::Types) {
            return readers::parquet_rows(unpacked, options.columns);
          }};
}

ArrowDataset read_file(const Path& path, const LoadOptions& options) {
  auto format = options.format;
  if (format == FileFormat::automatic) format = format_by_name(path);
  if (format == FileFormat::automatic) format = format_by_content(path);
  switch (format) {
    case FileFormat::csv:
      return readers::load_rows(csv_file(path, options));
    case FileFormat::json:
      return readers::load_rows(json_file(path, options));
    case FileFormat::text:
      return load_text_rows(path, false);
    case FileFormat::parquet:
      return readers::load_rows(parquet_file(path, options));
    default:
      return readers::read_arrow_file(path, options.trusted);
  }
}

ArrowDataset read_folder(const Path& folder, const LoadOptions& options) {
  if (std::filesystem::exists(folder / "state.json"))
    return readers::read_arrow_folder(folder, options.trusted);
  const bool several = std::filesystem::exists(folder / "dataset_dict.json");
  throw DataError(
      "'" + folder.string() + "' " +
      (several ? "holds several splits: load it with DatasetDict::load, or one of its folders."
               : "has no state.json: it is no folder that save_to_disk wrote. Name the files in it."));
}

/// The files that a pattern with `*`, `?` or `[...]` names, in the order of their names; else the path
/// itself.
std::vector<Path> matching(const Path& path) {
  if (path.string().find_first_of("*?[") == std::string::npos || std::filesystem::exists(path)) return {path};
  glob_t found{};
  const int status = ::glob(path.c_str(), GLOB_ERR, nullptr, &found);
  std::vector<Path> paths(found.gl_pathv, found.gl_pathv + (status == 0 ? found.gl_pathc : 0));
  ::globfree(&found);
  if (paths.empty()) throw DataError("no file matches '" + path.string() + "'.");
  return paths;
}

ArrowDataset read_any(const Path& path, const LoadOptions& options) {
  return std::filesystem::is_directory(path) ? read_folder(path, options) : read_file(path, options);
}

}  // namespace

ArrowDataset load_text_rows(const Path& path, bool keep_linebreaks) {
  auto fields = fields_of("text", {});
  fields["keep_linebreaks"] = json(keep_linebreaks).dump();
  return readers::load_rows({path, std::move(fields), [=](const Path& unpacked, readers::Types) {
                               return readers::text_rows({unpacked, path.string()}, keep_linebreaks);
                             }});
}

ArrowDataset with_source(const ArrowDataset& dataset, const Path& path) {
  if (!dataset.files().empty()) return dataset;
  auto fresh = DatasetAccess::copy(dataset);
  fresh->sources.push_back(path);
  return DatasetAccess::make(std::move(fresh));
}

ArrowDataset ArrowDataset::load(const Path& path, const LoadOptions& options) {
  return load(std::span<const Path>(&path, 1), options);
}

ArrowDataset ArrowDataset::load(std::span<const Path> paths, const LoadOptions& options) {
  if (paths.empty()) throw UsageError("there is no file to load: the list of paths is empty.");
  std::vector<ArrowDataset> parts;
  std::vector<Path> files;
  for (const auto& path : paths) {
    const auto some = matching(path);
    files.insert(files.end(), some.begin(), some.end());
  }
  for (const auto& path : files) {
    auto part = with_source(read_any(path, options), path);
    if (!options.columns.empty()) part = part.select_columns(options.columns);
    if (options.features && !(part.features() == *options.features)) part = part.cast(*options.features);
    parts.push_back(std::move(part));
  }
  return parts.size() == 1 ? parts.front() : concatenate(parts);
}

}  // namespace lockstep
