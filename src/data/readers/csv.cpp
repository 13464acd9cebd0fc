#include <algorithm>

#include "core/utf8_check.hpp"
#include "csv_parser.hpp"
#include "data/arrow/mapped_file.hpp"
#include "data/table/convert.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/column_builder.hpp"
#include "readers.hpp"

namespace lockstep::readers {
namespace {

using Cells = std::vector<CsvParser::Cell>;

[[noreturn]] void fail(const std::string& name, const std::string& what) {
  throw DataError("'" + name + "' cannot be read as CSV: " + what + ".");
}

std::vector<std::string> names_of(const Cells& first, const CsvOptions& options) {
  if (!options.column_names.empty()) return options.column_names;
  std::vector<std::string> names;
  for (std::size_t place = 0; place < first.size(); ++place) {
    names.push_back(options.header ? first[place].text : std::to_string(place));
  }
  return names;
}

/// All columns as text. Which columns there are is known after the first row.
class Texts {
 public:
  Texts(std::string name, const CsvOptions& options) : name_(std::move(name)), options_(options) {}

  void read(CsvParser& parser) {
    Cells cells;
    if (!parser.next(cells)) fail(name_, "it is empty");
    names_ = names_of(cells, options_);
    for (std::size_t place = 0; place < names_.size(); ++place)
      builders_.emplace_back(DataType(TypeKind::utf8));
    check_width(cells, parser);
    if (!options_.header) add(cells, parser);
    while (parser.next(cells)) add(cells, parser);
  }

  std::vector<std::pair<std::string, Column>> finish() {
    std::vector<std::pair<std::string, Column>> columns;
    for (std::size_t place = 0; place < names_.size(); ++place)
      columns.emplace_back(names_[place], builders_[place].finish());
    return columns;
  }

 private:
  std::string at(const CsvParser& parser) const {
    return "row " + std::to_string(row_) + " (line " + std::to_string(parser.line()) + ")";
  }

  void check_width(const Cells& cells, const CsvParser& parser) const {
    if (cells.size() == names_.size()) return;
    fail(name_, at(parser) + " has " + std::to_string(cells.size()) + " cells, but there are " +
                    std::to_string(names_.size()) + " columns");
  }

  bool is_null(const CsvParser::Cell& cell) const {
    const auto& nulls = options_.null_values;
    return !cell.quoted && std::find(nulls.begin(), nulls.end(), cell.text) != nulls.end();
  }

  void add(const Cells& cells, const CsvParser& parser) {
    check_width(cells, parser);
    for (std::size_t place = 0; place < cells.size(); ++place) {
      if (is_null(cells[place])) {
        builders_[place].append_null();
        continue;
      }
      if (first_not_utf8(cells[place].text) != std::string_view::npos) {
        fail(name_, at(parser) + ", column '" + names_[place] + "' is no text in UTF-8");
      }
      builders_[place].append(cells[place].text);
    }
    ++row_;
  }

  std::string name_;
  const CsvOptions& options_;
  std::vector<std::string> names_;
  std::vector<ColumnBuilder> builders_;
  std::int64_t row_ = 0;
};

template <typename Fits>
bool all_fit(const ColumnView<std::string_view>& texts, const Fits& fits) {
  for (std::int64_t row = 0; row < texts.size(); ++row) {
    const auto text = texts.get(row);
    if (text && !fits(*text)) return false;
  }
  return true;
}

Feature inferred(const Column& column) {
  const auto texts = column.view<std::string_view>();
  if (column.size() > 0 && column.null_count() == column.size()) return Feature(DataType(TypeKind::null));
  if (column.size() == 0) return Feature(DataType(TypeKind::utf8));
  if (all_fit(texts, [](std::string_view text) { return table::parse_integer(text).has_value(); }))
    return Feature(DataType(TypeKind::int64));
  if (all_fit(texts, [](std::string_view text) { return table::parse_number(text).has_value(); }))
    return Feature(DataType(TypeKind::float64));
  if (all_fit(texts, [](std::string_view text) { return table::parse_boolean(text).has_value(); }))
    return Feature(DataType(TypeKind::boolean));
  return Feature(DataType(TypeKind::utf8));
}

Feature feature_of(const std::string& column, const Column& texts, const std::optional<Features>& features) {
  return features && features->contains(column) ? (*features)[column] : inferred(texts);
}

}  // namespace

ArrowDataset read_csv(const std::filesystem::path& path, const CsvOptions& options,
                      const std::optional<Features>& features) {
  const arrow_file::MappedFile file(path);
  const auto name = path.string();
  CsvParser parser({reinterpret_cast<const char*>(file.data()), file.size()}, options, name);
  Texts texts(name, options);
  texts.read(parser);
  std::vector<std::pair<std::string, Column>> columns;
  std::vector<std::pair<std::string, Feature>> items;
  try {
    for (auto& [column, values] : texts.finish()) {
      items.emplace_back(column, feature_of(column, values, features));
      columns.emplace_back(column, table::converted_column(values, items.back().second, column));
    }
    return ArrowDataset::from_columns(std::move(columns), Features(std::move(items)));
  } catch (const UsageError& error) {
    throw DataError("'" + name + "': " + error.what());
  }
}

}  // namespace lockstep::readers
