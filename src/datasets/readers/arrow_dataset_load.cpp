#include <glob.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/json_text.hpp"
#include "core/text.hpp"
#include "datasets/arrow/mapped_file.hpp"
#include "datasets/arrow/stream_reader.hpp"
#include "datasets/dataset/concatenate.hpp"
#include "datasets/dataset/dataset_access.hpp"
#include "datasets/readers/packed_file.hpp"
#include "datasets/readers/readers.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

using Path = std::filesystem::path;
using Json = nlohmann::json;

/// The file extension; of a compressed file, that of its content.
std::string ending_of(const Path& path) {
  return to_lower_case(readers::unpacked_name(path).extension().string());
}

FileFormat format_by_name(const Path& path) {
  const auto ending = ending_of(path);
  if (ending == ".arrow" || ending == ".feather" || ending == ".ipc") return FileFormat::arrow;
  if (ending == ".csv" || ending == ".tsv") return FileFormat::csv;
  if (ending == ".json" || ending == ".jsonl" || ending == ".ndjson") return FileFormat::json;
  if (ending == ".txt" || ending == ".text") return FileFormat::text;
  if (ending == ".parquet") return FileFormat::parquet;
  if (ending == ".tar") return FileFormat::webdataset;
  return FileFormat::automatic;
}

FileFormat format_by_content(const Path& path) {
  const arrow_file::MappedFile file(path);
  const auto text = file.text();
  if (arrow_file::is_arrow(file)) return FileFormat::arrow;
  if (text.starts_with("PAR1")) return FileFormat::parquet;
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && (text[first] == '{' || text[first] == '[')) return FileFormat::json;
  const auto packing = readers::packing_of_content(text);
  if (!packing.empty() && !readers::is_packed(path)) {
    throw DataError("'" + path.string() + "' is compressed, which its name does not say: let it end in '" +
                    packing + "', after the ending of what is in it.");
  }
  throw DataError("'" + path.string() +
                  "': neither its name nor its first bytes tell what it is. Say so in LoadOptions::format.");
}

CsvOptions csv_options(const Path& path, const LoadOptions& options) {
  auto csv = options.csv;
  if (ending_of(path) == ".tsv" && csv.delimiter == CsvOptions{}.delimiter) csv.delimiter = '\t';
  return csv;
}

/// The options that affect the rows of a text file.
std::map<std::string, std::string> fields_of(const char* format, const LoadOptions& options) {
  std::map<std::string, std::string> fields;
  fields["format"] = json_text(Json(format));
  if (options.features) fields["features"] = options.features->to_json();
  return fields;
}

readers::RowFile csv_file(const Path& path, const LoadOptions& options,
                          const readers::TakeBadLine& take_bad) {
  const auto csv = csv_options(path, options);
  auto fields = fields_of("csv", options);
  fields["csv"] = json_text(Json({{"delimiter", int{csv.delimiter}},
                                  {"quote", int{csv.quote}},
                                  {"header", csv.header},
                                  {"column_names", csv.column_names},
                                  {"null_values", csv.null_values}}));
  return {path, std::move(fields), [=](const Path& unpacked, readers::Types types) {
            return readers::csv_rows({unpacked, path.string(), take_bad}, csv, options.features, types);
          }};
}

readers::RowFile json_file(const Path& path, const LoadOptions& options, const readers::TakeBadLine& take_bad,
                           const std::vector<std::string>& kept_as_json = {}) {
  auto fields = fields_of("json", options);
  if (!kept_as_json.empty()) fields["kept_as_json"] = json_text(Json(kept_as_json));
  return {
      path, std::move(fields), [=](const Path& unpacked, readers::Types types) {
        return readers::json_rows({unpacked, path.string(), take_bad}, options.features, types, kept_as_json);
      }};
}

readers::RowFile parquet_file(const Path& path, const LoadOptions& options) {
  auto fields = fields_of("parquet", {});
  fields["columns"] = json_text(Json(options.columns));
  return {path, std::move(fields), [=](const Path& unpacked, readers::Types) {
            return readers::parquet_rows(unpacked, options.columns);
          }};
}

readers::RowFile text_file(const Path& path, bool keep_linebreaks,
                           const readers::TakeBadLine& take_bad = {}) {
  auto fields = fields_of("text", {});
  fields["keep_linebreaks"] = json_text(Json(keep_linebreaks));
  return {path, std::move(fields), [=](const Path& unpacked, readers::Types) {
            return readers::text_rows({unpacked, path.string(), take_bad}, keep_linebreaks);
          }};
}

ArrowDataset read_file(const Path& path, const LoadOptions& options) {
  const auto format = readers::format_of(path, options);
  if (format == FileFormat::webdataset) {
    throw UsageError("'" + path.string() +
                     "' is a tar file of samples, which is streamed: read it with IterableDataset::load.");
  }
  if (format == FileFormat::arrow) return readers::read_arrow_file(path, options.trusted);
  return readers::load_rows(readers::row_file(path, format, options));
}

ArrowDataset read_folder(const Path& folder, const LoadOptions& options) {
  if (std::filesystem::exists(folder / "state.json"))
    return readers::read_arrow_folder(folder, options.trusted);
  const bool several = std::filesystem::exists(folder / "dataset_dict.json");
  throw DataError(
      "'" + folder.string() + "' " +
      (several ? "holds several splits: load it with DatasetDict::load, or one of its folders."
               : "has no state.json: it is not a folder that save_to_disk wrote. Name the files in it."));
}

constexpr std::size_t kMostNames = 1'000'000;

/// What the content of braces stands for: "000..146" or "a,b"; empty if it is neither.
std::vector<std::string> alternatives(const std::string& inside) {
  std::vector<std::string> found;
  const auto dots = inside.find("..");
  const auto is_number = [](std::string_view text) {
    return !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string::npos;
  };
  if (dots != std::string::npos && is_number(inside.substr(0, dots)) && is_number(inside.substr(dots + 2))) {
    const auto first = std::stoul(inside.substr(0, dots));
    const auto last = std::stoul(inside.substr(dots + 2));
    if (last >= first && last - first >= kMostNames)
      throw UsageError("the pattern {" + inside + "} names more than a million files.");
    for (auto number = first; number <= last; ++number) {
      const auto digits = std::to_string(number);
      found.push_back(std::string(dots - std::min(dots, digits.size()), '0') + digits);
    }
    return found;
  }
  if (inside.find(',') == std::string::npos) return found;
  for (std::size_t begin = 0; begin <= inside.size();) {
    const auto end = std::min(inside.find(',', begin), inside.size());
    found.push_back(inside.substr(begin, end - begin));
    begin = end + 1;
  }
  return found;
}

/// The names that the braces of a pattern expand to; the last braces vary fastest.
std::vector<std::string> spelled_out(const std::string& pattern) {
  std::vector<std::string> names{""};
  for (std::size_t index = 0; index < pattern.size();) {
    const auto open = pattern.find('{', index);
    const auto close = open == std::string::npos ? open : pattern.find('}', open);
    const auto end = close == std::string::npos ? pattern.size() : close + 1;
    const auto before = pattern.substr(index, std::min(open, end) - index);
    auto parts = close == std::string::npos ? std::vector<std::string>{}
                                            : alternatives(pattern.substr(open + 1, close - open - 1));
    if (parts.empty()) parts = {pattern.substr(index + before.size(), end - index - before.size())};
    if (names.size() * parts.size() > kMostNames)
      throw UsageError("the pattern '" + pattern + "' names more than a million files.");
    std::vector<std::string> longer;
    for (const auto& name : names) {
      for (const auto& part : parts) longer.push_back(name + before + part);
    }
    names = std::move(longer);
    index = end;
  }
  return names;
}

std::vector<Path> glob_paths(const std::string& pattern) {
  glob_t found{};
  const int status = ::glob(pattern.c_str(), GLOB_ERR, nullptr, &found);
  std::vector<Path> paths(found.gl_pathv, found.gl_pathv + (status == 0 ? found.gl_pathc : 0));
  ::globfree(&found);
  return paths;
}

/// The paths that match a pattern in which "**/" stands for any folders, or none. Hidden ones are left out.
std::vector<Path> deep_glob_paths(const std::string& pattern) {
  const auto stars = pattern.find("**/");
  if (stars == std::string::npos) return glob_paths(pattern);
  const auto rest = pattern.substr(stars + 3);
  auto paths = deep_glob_paths(pattern.substr(0, stars) + rest);
  for (const auto& folder : glob_paths(pattern.substr(0, stars) + "*/")) {
    if (std::filesystem::is_symlink(folder.parent_path())) continue;
    const auto below = deep_glob_paths(folder.string() + "**/" + rest);
    paths.insert(paths.end(), below.begin(), below.end());
  }
  return paths;
}

/// The files that match a pattern with `*`, `?`, `[...]` or "**/", sorted by name; otherwise the path itself.
std::vector<Path> globbed(const Path& path) {
  if (path.string().find_first_of("*?[") == std::string::npos || std::filesystem::exists(path)) return {path};
  auto paths = deep_glob_paths(path.string());
  if (paths.empty()) throw DataError("no file matches '" + path.string() + "'.");
  std::sort(paths.begin(), paths.end(), [](const Path& a, const Path& b) { return a.native() < b.native(); });
  paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
  return paths;
}

ArrowDataset read_any(const Path& path, const LoadOptions& options) {
  return std::filesystem::is_directory(path) ? read_folder(path, options) : read_file(path, options);
}

}  // namespace

namespace readers {

FileFormat format_of(const Path& path, const LoadOptions& options) {
  if (options.format != FileFormat::automatic) return options.format;
  const auto format = format_by_name(path);
  return format == FileFormat::automatic ? format_by_content(path) : format;
}

RowFile row_file(const Path& path, FileFormat format, const LoadOptions& options,
                 const TakeBadLine& take_bad) {
  if (format == FileFormat::csv) return csv_file(path, options, take_bad);
  if (format == FileFormat::json) return json_file(path, options, take_bad);
  if (format == FileFormat::parquet) return parquet_file(path, options);
  return text_file(path, false, take_bad);
}

ArrowDataset load_json(const Path& path, const std::vector<std::string>& kept_as_json) {
  return with_source(load_rows(json_file(path, {}, {}, kept_as_json)), path);
}

ArrowDataset with_options(ArrowDataset rows, const LoadOptions& options) {
  // An empty file of JSON.
  if (rows.num_columns() == 0) return rows;
  if (!options.columns.empty()) rows = rows.select_columns(options.columns);
  if (!options.features) return rows;
  // Features of columns that are not loaded do not count.
  std::vector<std::pair<std::string, Feature>> items;
  for (const auto& name : options.columns) items.emplace_back(name, (*options.features)[name]);
  const auto features = options.columns.empty() ? *options.features : Features(std::move(items));
  if (!(rows.features() == features)) rows = rows.cast(features);
  return rows;
}

std::vector<Path> matching_files(const Path& pattern) {
  if (std::filesystem::exists(pattern)) return {pattern};
  std::vector<Path> files;
  for (const auto& name : spelled_out(pattern.string())) {
    const auto some = globbed(name);
    files.insert(files.end(), some.begin(), some.end());
  }
  return files;
}

ArrowDataset load_text_rows(const Path& path, bool keep_linebreaks) {
  return load_rows(text_file(path, keep_linebreaks));
}

}  // namespace readers

ArrowDataset ArrowDataset::load(const Path& path, const LoadOptions& options) {
  return load(std::span<const Path>(&path, 1), options);
}

ArrowDataset ArrowDataset::load(std::span<const Path> paths, const LoadOptions& options) {
  if (paths.empty()) throw UsageError("there is no file to load: the list of paths is empty.");
  std::vector<ArrowDataset> parts;
  std::vector<Path> files;
  for (const auto& path : paths) {
    const auto some = readers::matching_files(path);
    files.insert(files.end(), some.begin(), some.end());
  }
  for (const auto& path : files) {
    parts.push_back(readers::with_options(with_source(read_any(path, options), path), options));
  }
  auto whole = parts.size() == 1 ? parts.front() : concatenated(parts, files);
  const auto& first = files.front();
  if (whole.num_columns() == 0 && !std::filesystem::is_directory(first) &&
      readers::format_of(first, options) == FileFormat::json)
    throw DataError("'" + first.string() + "' has no rows of JSON.");
  return whole;
}

}  // namespace lockstep
