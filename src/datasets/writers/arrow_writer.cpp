#include "lockstep/datasets/arrow_writer.hpp"

#include <fmt/core.h>

#include "datasets/arrow/arrow_conversions.hpp"
#include "datasets/arrow/batch_writer.hpp"
#include "datasets/dataset/from_rows.hpp"
#include "datasets/writers/save_folder.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

namespace {

/// About the memory that the value takes in a column.
std::int64_t bytes_of(const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value.variant())) return std::ssize(*text);
  if (const auto* bytes = std::get_if<Bytes>(&value.variant())) return std::ssize(bytes->data);
  std::int64_t sum = sizeof(std::int64_t);
  if (const auto* list = std::get_if<Value::List>(&value.variant())) {
    for (const auto& element : *list) sum += bytes_of(element);
  }
  if (const auto* fields = std::get_if<Value::Fields>(&value.variant())) {
    for (const auto& field : *fields) sum += bytes_of(field.second);
  }
  return sum;
}

}  // namespace

struct ArrowWriter::State {
  State(const std::filesystem::path& path, std::optional<Features> given, std::int64_t rows)
      : file(path), features(std::move(given)), batch_rows(rows) {}

  AtomicFile file;
  std::optional<Features> features;
  std::int64_t batch_rows;
  std::unique_ptr<arrow_file::BatchWriter> writer;
  std::vector<Value> waiting;
  std::int64_t waiting_bytes = 0;
  std::int64_t written = 0;

  void open(const Features& found) {
    if (writer) return;
    features = found;
    writer = arrow_file::stream_writer(
        [this](const void* data, std::size_t bytes) { file.write(data, bytes); }, schema_of(found));
  }

  void flush() {
    if (waiting.empty()) return;
    const auto rows = table::from_rows(waiting, features, written);
    waiting.clear();
    waiting_bytes = 0;
    write(rows);
  }

  void write(const ArrowDataset& rows) {
    open(rows.features());
    if (!(rows.features() == *features)) {
      throw UsageError(fmt::format(
          "rows with the columns {} cannot go into a file with the columns {}. Use cast.",
          DataType::struct_(rows.features().fields()).text(), DataType::struct_(features->fields()).text()));
    }
    write_batches(rows, batch_rows, *writer);
    written += rows.num_rows();
  }
};

ArrowWriter::ArrowWriter(const std::filesystem::path& file, std::optional<Features> features,
                         std::int64_t batch_rows) {
  if (batch_rows < 1)
    throw UsageError(fmt::format("a record batch needs 1 row or more, got {}.", batch_rows));
  state_ = std::make_unique<State>(file, std::move(features), batch_rows);
}
ArrowWriter::~ArrowWriter() = default;

void ArrowWriter::write(Value row) {
  state_->waiting_bytes += bytes_of(row);
  state_->waiting.push_back(std::move(row));
  if (std::ssize(state_->waiting) >= state_->batch_rows || state_->waiting_bytes >= arrow_file::kPieceBytes)
    state_->flush();
}

void ArrowWriter::write_batch(const ArrowDataset& rows) {
  state_->flush();
  state_->write(rows);
}

std::int64_t ArrowWriter::finalize() {
  state_->flush();
  if (!state_->features) throw UsageError("a file without rows needs features: no types can be found.");
  state_->open(*state_->features);
  state_->writer->finish();
  state_->file.commit();
  return state_->written;
}

}  // namespace lockstep
