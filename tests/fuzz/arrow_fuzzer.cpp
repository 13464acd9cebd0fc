#include <arrow/buffer.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "datasets/arrow/stream_reader.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/datasets/column.hpp"

namespace {

using lockstep::Column;

/// What a reader accepts, every accessor can read: a bounded number of rows, and a copy of them.
void read_all(const lockstep::arrow_file::FileTable& table) {
  constexpr std::int64_t kMostRows = 64;
  for (std::size_t place = 0; place < table.columns.size(); ++place) {
    const auto data =
        std::make_shared<const lockstep::ColumnData>(table.schema.fields[place].type, table.columns[place]);
    const Column column(data, lockstep::RowMap(0, std::min(data->size(), kMostRows)));
    for (std::int64_t row = 0; row < column.size(); ++row) static_cast<void>(column.value(row).to_json());
    static_cast<void>(column.flatten());
  }
}

}  // namespace

/// The input: a stream or a file of Arrow's.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto bytes = arrow::Buffer::FromVector(std::vector<std::uint8_t>(data, data + size));
    read_all(lockstep::arrow_file::read_arrow(bytes, "fuzz", false));
  } catch (const lockstep::Error&) {
  }
  return 0;
}
