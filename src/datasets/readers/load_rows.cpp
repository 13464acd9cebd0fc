#include "datasets/readers/readers.hpp"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "core/input_file.hpp"
#include "core/json_text.hpp"
#include "datasets/arrow/batch_writer.hpp"
#include "datasets/cache/cache_folder.hpp"
#include "datasets/distributed/cached_run.hpp"
#include "datasets/readers/packed_file.hpp"
#include "datasets/table/content_hash.hpp"
#include "datasets/writers/save_folder.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::readers {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// Version of the converted files' content; increased whenever that changes.
constexpr int kLayout = 4;
/// Reading a file of this size again costs no more than finding it in the cache.
constexpr std::uintmax_t kSmall = std::uintmax_t{8} << 20;

/// Decompresses a compressed file to `beside`; returns the path of the plain bytes.
fs::path unpacked(const fs::path& path, const fs::path& beside) {
  if (!is_packed(path)) return path;
  PackedFile packed(path);
  AtomicFile file(beside);
  std::vector<char> piece(std::size_t{1} << 20);
  while (const auto count = packed.read(piece)) file.write(piece.data(), count);
  file.commit();
  return beside;
}

std::uint64_t write_arrow(const RowFile& rows, const fs::path& to, const std::atomic<bool>& stop) {
  const auto from = unpacked(rows.path, to.parent_path() / "unpacked");
  std::unique_ptr<AtomicFile> file;
  std::unique_ptr<arrow_file::BatchWriter> writer;
  std::uint64_t count = 0;
  const auto begin = [&](const Features& features) {
    file = std::make_unique<AtomicFile>(to);
    count = 0;
    writer = arrow_file::stream_writer([&](const void* data, std::size_t bytes) { file->write(data, bytes); },
                                       schema_of(features));
    return [&](const std::vector<ArrayPointer>& columns, std::int64_t batch_rows) {
      if (stop) throw Error("load: stopped.");
      writer->write(columns, batch_rows);
      count += static_cast<std::uint64_t>(batch_rows);
    };
  };
  for_each_piece([&](Types types) { return rows.open(from, types); }, begin);
  writer->finish();
  file->commit();
  return count;
}

CacheManifest manifest_of(const RowFile& rows, const fs::path& cache) {
  CacheManifest manifest;
  manifest.name = "load " + rows.path.filename().string();
  manifest.fields = rows.fields;
  manifest.fields["layout"] = std::to_string(kLayout);
  manifest.fields["packed"] = json_text(Json(is_packed(rows.path) ? rows.path.extension().string() : ""));
  manifest.fields["source"] = json_text(Json(HashMemory(cache).of(rows.path)));
  // The key has no file name: the same bytes under another name are the same rows.
  manifest.key = table::content_hash(json_text(Json({{"operation", "load"}, {"fields", manifest.fields}})));
  return manifest;
}

ArrowDataset load_by_cache(const RowFile& rows, const fs::path& cache) {
  ShardedWork work;
  work.what = fmt::format("load '{}'", rows.path.string());
  work.manifest = manifest_of(rows, cache);
  // The number of rows is not known in advance.
  work.tasks = {{.number = 0, .first_row = 0, .rows = 1}};
  work.start = [&](const Worker&) -> ShardFunction {
    return [&](const ShardTask&, const fs::path& file, const std::atomic<bool>& stop) {
      return write_arrow(rows, file, stop);
    };
  };
  CachedRunOptions options;
  options.cache = cache;
  options.limit = default_cache_limit(process_environment());
  options.mark = hold_entry;
  return open_entry(run_cached(work, {}, options));
}

/// Null if no environment variable determines a cache folder.
std::optional<fs::path> cache_folder() {
  try {
    return default_cache_folder(process_environment());
  } catch (const UsageError&) {
    return std::nullopt;
  }
}

}  // namespace

ArrowDataset load_rows(const RowFile& file) {
  // InputFile's errors for a missing file are clearer than a library's.
  const auto bytes = InputFile(file.path).size();
  if (is_packed(file.path)) return load_by_cache(file, default_cache_folder(process_environment()));
  const auto cache = bytes < kSmall ? std::nullopt : cache_folder();
  if (cache) return load_by_cache(file, *cache);
  return read_all([&](Types types) { return file.open(file.path, types); });
}

}  // namespace lockstep::readers
