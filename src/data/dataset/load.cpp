#include <algorithm>
#include <cctype>

#include "data/arrow/mapped_file.hpp"
#include "data/arrow/stream_reader.hpp"
#include "data/readers/arrow_file.hpp"
#include "data/readers/readers.hpp"
#include "lockstep/core/error.hpp"
#include "state.hpp"

namespace lockstep {
namespace {

using Path = std::filesystem::path;

std::string ending_of(const Path& path) {
  auto ending = path.extension().string();
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
  const auto file = std::make_shared<const arrow_file::MappedFile>(path);
  const auto bytes = arrow_file::whole_file(file);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data), bytes.bytes);
  if (arrow_file::is_arrow(bytes)) return FileFormat::arrow;
  if (text.starts_with("PAR1")) return FileFormat::parquet;
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && (text[first] == '{' || text[first] == '[')) return FileFormat::json;
  throw DataError("'" + path.string() +
                  "': neither its name nor its first bytes tell what it is. Say so in LoadOptions::format.");
}

ArrowDataset read_file(const Path& path, const LoadOptions& options) {
  auto format = options.format;
  if (format == FileFormat::automatic) format = format_by_name(path);
  if (format == FileFormat::automatic) format = format_by_content(path);
  auto csv = options.csv;
  if (ending_of(path) == ".tsv" && csv.delimiter == CsvOptions{}.delimiter) csv.delimiter = '\t';
  switch (format) {
    case FileFormat::csv:
      return readers::read_csv(path, csv, options.features);
    case FileFormat::json:
      return readers::read_json(path, options.features);
    case FileFormat::text:
      return readers::read_text_lines(path);
    case FileFormat::parquet:
      return readers::read_all(*readers::parquet_rows(path, options.columns));
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

ArrowDataset read_any(const Path& path, const LoadOptions& options) {
  return std::filesystem::is_directory(path) ? read_folder(path, options) : read_file(path, options);
}

}  // namespace

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
  for (const auto& path : paths) {
    auto part = with_source(read_any(path, options), path);
    if (!options.columns.empty()) part = part.select_columns(options.columns);
    if (options.features && !(part.features() == *options.features)) part = part.cast(*options.features);
    parts.push_back(std::move(part));
  }
  return parts.size() == 1 ? parts.front() : concatenate(parts);
}

}  // namespace lockstep
