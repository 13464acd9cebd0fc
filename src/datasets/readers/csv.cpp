#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <cmath>
#include <cstdint>
#include <exception>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/text.hpp"
#include "core/utf8_check.hpp"
#include "datasets/arrow/mapped_file.hpp"
#include "datasets/readers/csv_parser.hpp"
#include "datasets/readers/readers.hpp"
#include "datasets/readers/rounding.hpp"
#include "datasets/table/convert.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/datasets/arrow_dataset.hpp"

namespace lockstep::readers {
namespace {

using Cells = std::vector<CsvParser::Cell>;

/// Number of rows from which types are first inferred.
constexpr std::int64_t kFirstRows = 1000;

constexpr const char* kNotUtf8 =
    "it is not UTF-8 text: convert the file first (iconv -f LATIN1 -t UTF-8, if that is what it is)";

[[noreturn]] void fail(const std::string& name, const std::string& what) {
  throw DataError(fmt::format("'{}' cannot be read as CSV: {}.", name, what));
}

/// A number of a cell. NaN and infinities only as pandas spells them: "NAN", "nan(1)" and " inf" are text.
std::optional<double> number_of(std::string_view cell) {
  const auto text = trim_blanks(cell);
  const auto number = table::parse_number(text);
  if (!number || text.find_first_of("nN") == std::string_view::npos) return number;
  const bool spelled = std::isinf(*number) || text.ends_with("NaN") || text.ends_with("nan");
  return spelled && text.size() == cell.size() ? number : std::nullopt;
}

/// A cell for a column of a given type. As in pandas numbers may have blanks around them, a number may be
/// true or false, and a boolean 0 or 1.
Value cell_value(std::string_view text, const Feature& feature) {
  const auto& type = feature.type();
  if (feature.kind() != Feature::Kind::value) return Value(text);
  if (type.is_integer() || type.is_floating()) {
    const auto truth = table::parse_boolean(text);
    return truth ? Value(*truth) : Value(trim_blanks(text));
  }
  const auto number = type.kind() == TypeKind::boolean ? number_of(text) : std::nullopt;
  return number && (*number == 0 || *number == 1) ? Value(*number == 1) : Value(text);
}

/// Whether there are only digits behind a sign, if there is one.
bool is_integer(std::string_view cell) {
  if (cell.starts_with('-') || cell.starts_with('+')) cell.remove_prefix(1);
  return std::all_of(cell.begin(), cell.end(), [](char one) { return one >= '0' && one <= '9'; });
}

/// Whether float64 has fewer digits than the integer.
bool is_rounded(std::int64_t integer) {
  constexpr std::int64_t kExact = std::int64_t{1} << 53;
  if (integer >= -kExact && integer <= kExact) return false;
  const auto number = static_cast<double>(integer);
  // 2^63 is outside of int64.
  return number >= 9223372036854775808.0 || static_cast<std::int64_t>(number) != integer;
}

/// The types that all cells of a column so far fit.
class CellTypes {
 public:
  void add_null() { null_ = true; }
  void add(std::string_view text) {
    value_ = true;
    const auto cell = trim_blanks(text);
    negative_ = negative_ || cell.starts_with('-');
    if (number_) {
      const auto integer = table::parse_integer(cell);
      rounded_ = rounded_ || (integer && is_rounded(*integer));
      if (!integer) add_other(cell, text);
    }
    boolean_ = boolean_ && table::parse_boolean(text);
  }
  bool has_nulls() const { return null_; }

  /// Like pandas in `datasets`: a column of integers with a null is float64. But integers that float64 would
  /// round stay what they are beside nulls, and those that no type holds together are text.
  TypeKind kind() const {
    if (!value_ && !null_) return TypeKind::utf8;
    if (integer_ && !large_) return null_ && !rounded_ ? TypeKind::float64 : TypeKind::int64;
    if (integer_) return negative_ || null_ || huge_ ? TypeKind::utf8 : TypeKind::uint64;
    if (number_) return huge_ ? TypeKind::utf8 : TypeKind::float64;
    return boolean_ ? TypeKind::boolean : TypeKind::utf8;
  }

 private:
  /// A cell that is no int64, without blanks and with them.
  void add_other(std::string_view cell, std::string_view text) {
    if (cell.size() > 1 && is_integer(cell)) {
      large_ = true;
      huge_ = huge_ || !table::parse_unsigned(cell);
      return;
    }
    integer_ = false;
    number_ = number_of(text).has_value();
  }

  bool value_ = false;
  bool null_ = false;
  bool integer_ = true;
  bool number_ = true;
  bool boolean_ = true;
  bool negative_ = false;
  /// Integers that float64 rounds.
  bool rounded_ = false;
  /// Integers above the range of int64, and outside that of uint64 too.
  bool large_ = false;
  bool huge_ = false;
};

/// The columns' names in a header, made different as by pandas: "a", "a.1", and "Unnamed: 2" for an empty
/// one.
std::vector<std::string> header_names(const Cells& cells) {
  std::vector<std::string> names;
  // Names that are given come before those that are not.
  std::vector<std::size_t> order;
  for (const auto& cell : cells) {
    if (!cell.text.empty()) order.push_back(names.size());
    names.push_back(cell.text.empty() ? fmt::format("Unnamed: {}", names.size()) : cell.text);
  }
  for (std::size_t index = 0; index < cells.size(); ++index) {
    if (cells[index].text.empty()) order.push_back(index);
  }
  std::map<std::string, std::size_t> counts;
  for (const auto index : order) {
    const auto given = names[index];
    auto name = given;
    for (auto count = counts[name]; count > 0;) {
      counts[given] = count + 1;
      name = fmt::format("{}.{}", given, count);
      count = std::find(names.begin(), names.end(), name) != names.end() ? count + 1 : counts[name];
    }
    names[index] = name;
    ++counts[name];
  }
  return names;
}

/// The cells of a file, row by row; cells that a row has not are null.
class Table {
 public:
  Table(const TextFile& file, const CsvOptions& options)
      : file_(file.path), name_(file.name), options_(options), parser_(text(), options, name_) {
    refuse_utf16();
    if (!parser_.next(cells_)) fail(name_, "it is empty");
    if (options.header) names_ = header_names(cells_);
    for (std::size_t index = 0; !options.header && index < cells_.size(); ++index)
      names_.push_back(std::to_string(index));
    if (!options.column_names.empty()) names_ = options.column_names;
    check_names();
    check_width();
    // Without a header, the first row is data: read it again.
    if (!options.header) parser_ = CsvParser(text(), options, name_);
    for (const auto& null : options.null_values)
      null_lengths_[null.empty() ? 0 : static_cast<unsigned char>(null[0])].set(
          std::min(null.size(), kLongest));
  }

  const std::vector<std::string>& names() const noexcept { return names_; }

  /// Reads the next row; false at the end. After a DataError, which names the row, goes on with the next one.
  bool next() {
    if (!parser_.next(cells_)) return false;
    ++row_;
    check_width();
    for (std::size_t column = 0; column < cells_.size(); ++column) {
      if (first_not_utf8(cells_[column].text) != std::string_view::npos) fail_at(column, kNotUtf8);
    }
    return true;
  }

  std::int64_t line() const noexcept { return parser_.line(); }

  std::string_view text(std::size_t column) const { return cells_[column].text; }

  bool is_null(std::size_t column) const {
    if (column >= cells_.size()) return true;
    const auto& [text, quoted] = cells_[column];
    // Most cells differ from all nulls in first character or length.
    const auto& lengths = null_lengths_[text.empty() ? 0 : static_cast<unsigned char>(text[0])];
    if (quoted || !lengths[std::min(text.size(), kLongest)]) return false;
    const auto& nulls = options_.null_values;
    return std::find(nulls.begin(), nulls.end(), text) != nulls.end();
  }

  [[noreturn]] void fail_at(std::size_t column, const std::string& what) const {
    fail(name_, fmt::format("{}, column '{}': {}", location(), names_[column], what));
  }

  /// Says once that the cell's integer is rounded.
  void warn(std::size_t column, double number) const {
    warn_rounded(name_, fmt::format("{} of '{}'", location(), name_), names_[column],
                 trim_blanks(text(column)), number);
  }

 private:
  std::string_view text() const { return file_.text(); }
  /// Rows are counted from 0.
  std::string location() const {
    return fmt::format("row {} (line {})", std::max<std::int64_t>(row_, 0), parser_.line());
  }

  void refuse_utf16() const {
    if (text().starts_with("\xFF\xFE") || text().starts_with("\xFE\xFF"))
      fail(name_, "it is UTF-16 text: convert it first (iconv -f UTF-16 -t UTF-8)");
  }

  void check_names() const {
    for (std::size_t column = 0; column < names_.size(); ++column) {
      const auto& name = names_[column];
      const auto where = fmt::format("line {}: the name of column {}", parser_.line(), column + 1);
      if (name.find('\0') != std::string::npos) fail(name_, where + " has a zero byte: is the file UTF-16?");
      if (first_not_utf8(name) != std::string::npos)
        fail(name_, fmt::format("{} ('{}'): {}", where, utf8_text(name), kNotUtf8));
    }
  }

  void check_width() const {
    if (parser_.is_careful() && cells_.size() != names_.size())
      fail(name_, fmt::format("{} is a part of the broken row before it, or not complete", location()));
    if (cells_.size() <= names_.size()) return;
    fail(name_,
         fmt::format("{} has {} cells, but there are {} columns", location(), cells_.size(), names_.size()));
  }

  arrow_file::MappedFile file_;
  std::string name_;
  const CsvOptions& options_;
  CsvParser parser_;
  std::vector<std::string> names_;
  Cells cells_;
  static constexpr std::size_t kLongest = 63;
  /// The lengths of nulls by their first character.
  std::array<std::bitset<kLongest + 1>, 256> null_lengths_{};
  std::int64_t row_ = -1;
};

/// The types of the cells of each column.
std::vector<CellTypes> types_of_cells(const TextFile& file, const CsvOptions& options, Types types) {
  Table table(file, options);
  std::vector<CellTypes> found(table.names().size());
  for (std::int64_t row = 0; types == Types::of_all_rows || row < kFirstRows; ++row) {
    try {
      if (!table.next()) break;
    } catch (const DataError&) {
      // Whoever reads the rows leaves it out, too, and reports it.
      if (file.take_bad) continue;
      throw;
    }
    for (std::size_t column = 0; column < found.size(); ++column) {
      if (table.is_null(column)) {
        found[column].add_null();
      } else {
        found[column].add(table.text(column));
      }
    }
  }
  return found;
}

class CsvRows final : public RowSource {
 public:
  CsvRows(const TextFile& file, CsvOptions options, const std::optional<Features>& features, Types types)
      : options_(std::move(options)),
        types_(types),
        take_bad_(file.take_bad),
        table_(file, options_),
        features_(find_features(file, features)),
        pieces_(features_) {}

  const Features& features() const override { return features_; }

  std::vector<ArrayPointer> next() override {
    for (bool more = true; more && !failure_;) {
      while (!failure_ && more && !pieces_.is_full()) more = add_row();
      auto arrays = pieces_.take();
      if (!arrays.empty()) return arrays;
    }
    // The rows before what cannot be read come first.
    if (failure_) std::rethrow_exception(failure_);
    return {};
  }

 private:
  /// Adds the next row, if it can be read; false at the end.
  bool add_row() {
    const auto row = pieces_.rows();
    try {
      if (!table_.next()) return false;
      for (std::size_t column = 0; column < features_.size(); ++column) add(column);
    } catch (const DataError& error) {
      pieces_.leave_out(row);
      if (take_bad_) {
        take_bad_(table_.line(), error.what());
      } else {
        failure_ = std::current_exception();
      }
    }
    return true;
  }

  /// The given features; for the file's other columns, inferred ones.
  Features find_features(const TextFile& file, const std::optional<Features>& given) try {
    const auto found = types_of_cells(file, options_, types_);
    std::vector<std::pair<std::string, Feature>> items;
    for (std::size_t column = 0; column < found.size(); ++column) {
      const auto& name = table_.names()[column];
      given_.push_back(given && given->contains(name));
      has_nulls_.push_back(found[column].has_nulls());
      items.emplace_back(name, given_.back() ? (*given)[name] : Feature(DataType(found[column].kind())));
    }
    return Features(std::move(items));
  } catch (const UsageError& error) {
    throw DataError(fmt::format("'{}': {}", file.name, error.what()));
  }

  void add(std::size_t column) {
    auto& builder = pieces_.column(column);
    const auto& feature = features_.items()[column].second;
    if (table_.is_null(column)) {
      // Integers without nulls were inferred; a null may make the column float64.
      if (!given_[column] && feature.type().is_integer() && !has_nulls_[column]) narrow(column);
      return builder.append_null();
    }
    const auto text = table_.text(column);
    if (feature.type().kind() == TypeKind::float64) check_digits(column, text);
    if (given_[column]) return add_given(builder, column, feature);
    if (!add_found(builder, feature.type().kind(), text)) narrow(column);
  }

  /// An integer that float64 rounds makes a column of other integers and nulls one of integers; beside other
  /// numbers it is rounded.
  void check_digits(std::size_t column, std::string_view text) const {
    constexpr std::size_t kExactDigits = 15;
    if (text.size() <= kExactDigits) return;
    const auto cell = trim_blanks(text);
    if (cell.size() <= kExactDigits || !is_integer(cell)) return;
    const auto number = table::parse_number(cell);
    if (!number || is_exact(cell, *number)) return;
    if (!given_[column] && types_ == Types::of_the_beginning) narrow(column);
    table_.warn(column, *number);
  }

  static bool add_found(ColumnBuilder& builder, TypeKind kind, std::string_view text) {
    const auto add = [&](const auto& value) {
      if (value) builder.append(*value);
      return value.has_value();
    };
    if (kind == TypeKind::int64) return add(table::parse_integer(trim_blanks(text)));
    if (kind == TypeKind::uint64) return add(table::parse_unsigned(trim_blanks(text)));
    if (kind == TypeKind::float64) return add(number_of(text));
    if (kind == TypeKind::boolean) return add(table::parse_boolean(text));
    builder.append(text);
    return true;
  }

  void add_given(ColumnBuilder& builder, std::size_t column, const Feature& feature) const {
    try {
      builder.append(table::convert_value(cell_value(table_.text(column), feature), feature));
    } catch (const UsageError& error) {
      table_.fail_at(column, error.what());
    }
  }

  [[noreturn]] void narrow(std::size_t column) const {
    if (types_ == Types::of_the_beginning) throw TypesTooNarrow();
    table_.fail_at(column, "the file was changed while it was read");
  }

  CsvOptions options_;
  Types types_;
  TakeBadLine take_bad_;
  Table table_;
  /// Of each column: whether its type was given, and whether inferring it has found nulls.
  std::vector<bool> given_;
  std::vector<bool> has_nulls_;
  Features features_;
  PieceBuilder pieces_;
  std::exception_ptr failure_;
};

}  // namespace

std::unique_ptr<RowSource> csv_rows(const TextFile& file, const CsvOptions& options,
                                    const std::optional<Features>& features, Types types) {
  return std::make_unique<CsvRows>(file, options, features, types);
}

}  // namespace lockstep::readers
