#include <algorithm>
#include <cmath>

#include "datasets/dataset/state.hpp"
#include "lockstep/core/atomic_file.hpp"

namespace lockstep {
namespace {

/// Lines that go to the file in pieces of some size.
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

/// Text that would be read as a null, or as several cells, goes in quotes.
bool needs_quotes(std::string_view cell) {
  static const auto nulls = CsvOptions().null_values;
  return cell.find_first_of(",\"\r\n") != std::string_view::npos ||
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
  // A line with nothing in it would be passed over.
  if (value.is_null() && only) text += "NA";
  if (value.is_null()) return;
  if (const auto* written = std::get_if<std::string>(&value.variant())) return add_cell(text, *written);
  add_cell(text, value.to_json());
}

bool has_floating(const DataType& type) {
  return type.is_floating() || std::any_of(type.fields().begin(), type.fields().end(),
                                           [](const Field& field) { return has_floating(field.type); });
}

/// JSON has neither NaN nor infinities: null, as pandas writes them, so that every reader takes the line.
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

}  // namespace

void ArrowDataset::to_json(const std::filesystem::path& file) const {
  Lines lines(file);
  const bool floating = has_floating(DataType::struct_(features().fields()));
  for (std::int64_t row = 0; row < num_rows(); ++row) {
    const auto value = this->row(row).value();
    lines.text() += (floating ? finite(value) : value).to_json();
    lines.end_line();
  }
  lines.finish();
}

void ArrowDataset::to_csv(const std::filesystem::path& file) const {
  Lines lines(file);
  const auto separate = [&](std::size_t place) {
    if (place > 0) lines.text() += ',';
  };
  for (std::size_t place = 0; place < columns().size(); ++place) {
    separate(place);
    add_cell(lines.text(), columns()[place].first);
  }
  lines.end_line();
  for (std::int64_t row = 0; row < num_rows(); ++row) {
    for (std::size_t place = 0; place < columns().size(); ++place) {
      separate(place);
      add_value(lines.text(), columns()[place].second.value(row), columns().size() == 1);
    }
    lines.end_line();
  }
  lines.finish();
}

}  // namespace lockstep
