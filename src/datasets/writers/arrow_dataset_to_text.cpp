#include <algorithm>
#include <cmath>
#include <utility>

#include "core/json_text.hpp"
#include "datasets/arrow/arrow_conversions.hpp"
#include "datasets/table/convert.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/datasets/arrow_dataset.hpp"

namespace lockstep {
namespace {

/// Writes lines to the file in large pieces.
class Lines {
 public:
  explicit Lines(const std::filesystem::path& path) : file_(path) {}

  std::string& text() { return text_; }
  void end_line() {
    constexpr std::size_t kPiece = std::size_t{1} << 20;
    text_ += '\n';
    if (text_.size() < kPiece) return;
    file_.write(text_);
    text_.clear();
  }
  void finish() {
    file_.write(text_);
    file_.commit();
  }

 private:
  AtomicFile file_;
  std::string text_;
};

/// Text that would be read as a null, as several cells or as an empty line is quoted.
bool needs_quotes(std::string_view cell) {
  static const auto nulls = CsvOptions().null_values;
  return cell.find_first_of(",\"\r\n") != std::string_view::npos ||
         cell.find_first_not_of(" \t") == std::string_view::npos ||
         std::find(nulls.begin(), nulls.end(), cell) != nulls.end();
}

void add_cell(std::string& text, std::string_view cell) {
  if (!needs_quotes(cell)) {
    text += cell;
    return;
  }
  text += '"';
  for (const char one : cell) {
    if (one == '"') text += '"';
    text += one;
  }
  text += '"';
}

void add_value(std::string& text, const Value& value, bool only) {
  // An empty line would be skipped by readers.
  if (value.is_null() && only) text += "NA";
  if (value.is_null()) return;
  if (const auto* written = std::get_if<std::string>(&value.variant())) return add_cell(text, *written);
  auto cell = value.to_json();
  // Base64 needs no quotes.
  if (std::get_if<Bytes>(&value.variant()) != nullptr) cell = cell.substr(1, cell.size() - 2);
  add_cell(text, cell);
}

bool has_floating(const DataType& type) {
  return type.is_floating() || std::any_of(type.fields().begin(), type.fields().end(),
                                           [](const Field& field) { return has_floating(field.type); });
}

/// JSON has neither NaN nor infinities: writes null, like pandas, so that every reader accepts the line.
Value finite(const Value& value) {
  if (const auto* number = std::get_if<double>(&value.variant()))
    return std::isfinite(*number) ? value : Value();
  if (const auto* list = std::get_if<Value::List>(&value.variant())) {
    Value::List elements;
    for (const auto& element : *list) elements.push_back(finite(element));
    return Value(std::move(elements));
  }
  if (const auto* fields = std::get_if<Value::Fields>(&value.variant())) {
    Value::Fields inner;
    for (const auto& [name, field] : *fields) inner.emplace_back(name, finite(field));
    return Value(std::move(inner));
  }
  return value;
}

/// Calls `take` for each row; dates and times are text, as ISO 8601 writes them.
void each_row(const ArrowDataset& dataset, const std::function<void(const Row&)>& take) {
  constexpr std::int64_t kRows = 1000;
  auto features = dataset.features().items();
  for (auto& [name, feature] : features) {
    const auto type = table::with_times_as_text(feature.type());
    if (!(type == feature.type())) feature = Feature(type);
  }
  const Features written(std::move(features));
  const bool has_times = !(written == dataset.features());
  for (std::int64_t first = 0; first < dataset.num_rows(); first += kRows) {
    auto rows = dataset.slice(first, std::min(kRows, dataset.num_rows() - first));
    // A cast checks class labels again, which would copy them.
    if (has_times) rows = rows.cast(written);
    for (std::int64_t row = 0; row < rows.num_rows(); ++row) take(rows.row(row));
  }
}

}  // namespace

void ArrowDataset::to_json(const std::filesystem::path& file) const {
  Lines lines(file);
  const bool floating = has_floating(DataType::struct_(features().fields()));
  each_row(*this, [&](const Row& row) {
    const auto value = row.value();
    lines.text() += (floating ? finite(value) : value).to_json();
    lines.end_line();
  });
  lines.finish();
}

void ArrowDataset::to_csv(const std::filesystem::path& file) const {
  Lines lines(file);
  const auto separate = [&](std::size_t index) {
    if (index > 0) lines.text() += ',';
  };
  for (std::size_t index = 0; index < columns().size(); ++index) {
    separate(index);
    add_cell(lines.text(), columns()[index].first);
  }
  lines.end_line();
  each_row(*this, [&](const Row& row) {
    const auto value = row.value();
    for (std::size_t index = 0; index < columns().size(); ++index) {
      separate(index);
      add_value(lines.text(), value.fields()[index].second, columns().size() == 1);
    }
    lines.end_line();
  });
  lines.finish();
}

}  // namespace lockstep
