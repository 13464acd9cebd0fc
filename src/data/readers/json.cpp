#include "data/arrow/mapped_file.hpp"
#include "data/table/convert.hpp"
#include "data/table/type_finder.hpp"
#include "json_values.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/column_builder.hpp"
#include "readers.hpp"

namespace lockstep::readers {
namespace {

/// The rows of a file: of JSON lines, parsed each time that they are wanted; of one list, parsed once.
class Rows {
 public:
  Rows(std::string_view text, std::string name) : text_(text), name_(std::move(name)) {
    const auto first = text.find_first_not_of(" \t\r\n");
    is_list_ = first != std::string_view::npos && text[first] == '[';
    if (is_list_) list_ = parse_value(text, "'" + name_ + "'").list();
  }

  /// Calls `take(row, where)` for each row in order; `where` names its place.
  template <typename Take>
  void each(const Take& take) const {
    if (!is_list_) return each_line(take);
    for (std::size_t row = 0; row < list_.size(); ++row) {
      take(list_[row], "element " + std::to_string(row) + " of '" + name_ + "'");
    }
  }

 private:
  template <typename Take>
  void each_line(const Take& take) const {
    std::int64_t line = 0;
    for (std::size_t begin = 0; begin < text_.size();) {
      const auto end = std::min(text_.find('\n', begin), text_.size());
      const auto text = text_.substr(begin, end - begin);
      begin = end + 1;
      ++line;
      if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      const auto where = "line " + std::to_string(line) + " of '" + name_ + "'";
      take(parse_value(text, where), where);
    }
  }

  std::string_view text_;
  std::string name_;
  bool is_list_ = false;
  Value::List list_;
};

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  throw DataError(where + ": " + what + ".");
}

void require_object(const Value& row, const std::string& where) {
  if (std::get_if<Value::Fields>(&row.variant()) == nullptr)
    fail(where, std::string("a row must be an object, but it is ") + row.kind());
}

Features inferred(const Rows& rows) {
  table::TypeFinder finder;
  rows.each([&](const Value& row, const std::string& where) {
    require_object(row, where);
    try {
      finder.add(row);
    } catch (const UsageError& error) {
      fail(where, std::string(error.what()) + ". Give the features, or make the file's rows alike");
    }
  });
  return Features::from_fields(finder.type().fields());
}

/// The fields that the features name; others are refused, so that nothing is lost unseen.
void add_row(const Value& row, const Feature& whole, ColumnBuilder& builder, const std::string& where) {
  require_object(row, where);
  for (const auto& [name, value] : row.fields()) {
    bool known = false;
    for (const auto& field : whole.type().fields()) known = known || field.name == name;
    if (!known) fail(where, "it has the field '" + name + "', which the features do not name");
  }
  try {
    builder.append(table::converted(row, whole));
  } catch (const UsageError& error) {
    fail(where, error.what());
  }
}

}  // namespace

ArrowDataset read_json(const std::filesystem::path& path, const std::optional<Features>& features) {
  const arrow_file::MappedFile file(path);
  const Rows rows({reinterpret_cast<const char*>(file.data()), file.size()}, path.string());
  const auto wanted = features ? *features : inferred(rows);
  if (wanted.empty()) throw DataError("'" + path.string() + "' has no rows of JSON.");
  const auto whole = Feature::structure(wanted);
  ColumnBuilder builder(whole.type());
  rows.each([&](const Value& row, const std::string& where) { add_row(row, whole, builder, where); });
  const auto array = builder.finish().flatten();
  std::vector<std::pair<std::string, Column>> columns;
  for (std::size_t place = 0; place < wanted.size(); ++place) {
    columns.emplace_back(wanted.items()[place].first, Column(array->children[place]));
  }
  return ArrowDataset::from_columns(std::move(columns), wanted);
}

}  // namespace lockstep::readers
