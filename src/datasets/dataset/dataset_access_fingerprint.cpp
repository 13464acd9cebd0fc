#include <algorithm>

#include "datasets/arrow/arrow_conversions.hpp"
#include "datasets/arrow/batch_writer.hpp"
#include "datasets/arrow/mapped_file.hpp"
#include "datasets/dataset/dataset_access.hpp"
#include "datasets/table/content_hash.hpp"

namespace lockstep {
namespace {

using table::ContentHash;

/// Hash of the column as an Arrow stream.
std::string content_of(const ColumnData& data) {
  ContentHash hash;
  const auto sink = [&](const void* bytes, std::size_t count) { hash.update(bytes, count); };
  const auto writer = arrow_file::stream_writer(sink, arrow_file::to_arrow({{"", data.type()}}));
  for (std::size_t chunk = 0; chunk < data.chunks().size(); ++chunk)
    writer->write({&data.chunks()[chunk].array, 1}, data.start(chunk + 1) - data.start(chunk));
  return hash.text();
}

void add_data(ContentHash& hash, const ColumnData& data, const HashMemory& memory) {
  hash.update_field(data.type().text());
  if (!data.source_files()) {
    hash.update_field(data.memory_hash([&] { return content_of(data); }));
    return;
  }
  for (const auto& part : data.source_files()->parts) {
    hash.update_field(part.file->fingerprint([&] { return memory.of(*part.file); }));
    hash.update_field(part.column);
  }
}

void add_rows(ContentHash& hash, const RowMap& rows) {
  hash.update_number(static_cast<std::uint64_t>(rows.size()));
  if (rows.size() > 0 && rows.is_range()) hash.update_number(static_cast<std::uint64_t>(rows[0]));
  for (std::int64_t row = 0; !rows.is_range() && row < rows.size(); ++row) {
    hash.update_number(static_cast<std::uint64_t>(rows[row]));
  }
}

std::string identity_of(const DatasetAccess::State& state, const HashMemory& memory) {
  ContentHash hash;
  hash.update_field(state.features.to_json());
  hash.update_number(static_cast<std::uint64_t>(state.rows));
  std::string rows;
  RowMap last;
  for (const auto& [name, column] : state.columns) {
    hash.update_field(name);
    add_data(hash, *column.data(), memory);
    if (rows.empty() || !column.rows().is_same(last)) {
      ContentHash map;
      add_rows(map, column.rows());
      rows = map.text();
      last = column.rows();
    }
    hash.update_field(rows);
  }
  return hash.text();
}

}  // namespace

std::string DatasetAccess::fingerprint(const ArrowDataset& dataset, const HashMemory& memory) {
  const auto& all = state(dataset);
  const std::lock_guard guard(all.lock);
  if (all.fingerprint.empty()) all.fingerprint = identity_of(all, memory);
  return all.fingerprint;
}

}  // namespace lockstep
