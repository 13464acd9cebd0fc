#include <arrow/array/array_base.h>
#include <arrow/buffer.h>
#include <arrow/json/options.h>
#include <arrow/json/reader.h>
#include <arrow/record_batch.h>
#include <fmt/core.h>

#include <algorithm>
#include <deque>

#include "core/json.hpp"
#include "core/parallel_for.hpp"
#include "core/utf8_check.hpp"
#include "datasets/arrow/bridge.hpp"
#include "datasets/arrow/mapped_file.hpp"
#include "datasets/table/convert.hpp"
#include "datasets/table/schema_inference.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/processors.hpp"
#include "lockstep/datasets/column_builder.hpp"
#include "readers.hpp"

namespace lockstep::readers {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;

[[noreturn]] void fail_at(const std::string& where, const std::string& what) {
  throw DataError(where + ": " + what + ".");
}

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n") == std::string_view::npos; }

Value value_of(nlohmann::ordered_json& json) {
  if (json.is_boolean()) return Value(json.get<bool>());
  if (json.is_number_unsigned()) return Value(json.get<std::uint64_t>());
  if (json.is_number_integer()) return Value(json.get<std::int64_t>());
  if (json.is_number()) return Value(json.get<double>());
  if (json.is_string()) return Value(std::move(json.get_ref<std::string&>()));
  if (json.is_array()) {
    Value::List list;
    for (auto& element : json) list.push_back(value_of(element));
    return Value(std::move(list));
  }
  if (!json.is_object()) return Value();
  Value::Fields fields;
  for (auto& [name, field] : json.items()) fields.emplace_back(name, value_of(field));
  return Value(std::move(fields));
}

/// Exact parser for text that Arrow rejects. `what` names the text in errors ("line 3 of 'a.jsonl'").
Value parse_value(std::string_view text, const std::string& what) {
  auto json = json_tree::parse<nlohmann::ordered_json>(text, what);
  return value_of(json);
}

/// Some rows, one per line; for a list, its elements.
struct Block {
  std::string_view text;
  /// Owns `text` if it is not a part of the file.
  std::shared_ptr<const std::string> own;
  /// The first row's place in the file: its line number, or its number in the list, from 0.
  std::int64_t number = 0;
};

/// The rows of a file, in blocks of a megabyte or one longer row.
class Blocks {
 public:
  explicit Blocks(const TextFile& file) : file_(file.path), name_(file.name) {
    // A byte order mark.
    if (text().starts_with("\xEF\xBB\xBF")) place_ = 3;
    const auto first = text().find_first_not_of(" \t\r\n", place_);
    if (first == std::string_view::npos) return;
    is_list_ = text()[first] == '[';
    if (is_list_) place_ = first + 1;
    is_one_ = text()[first] == '{' && is_one_object(first);
  }

  std::optional<Block> next() {
    if (is_one_) return next_object();
    return is_list_ ? next_elements() : next_lines();
  }

  /// Calls `take(row, where)` for each row; `where` is its place in the file.
  template <typename Take>
  void each_row(const Block& block, const Take& take) const {
    auto number = block.number;
    for (std::size_t begin = 0; begin < block.text.size(); ++number) {
      const auto end = std::min(block.text.find('\n', begin), block.text.size());
      const auto row = block.text.substr(begin, end - begin);
      begin = end + 1;
      if (is_blank(row)) continue;
      const auto where = fmt::format("{} {} of '{}'", is_list_ ? "element" : "line", number, name_);
      take(parse_value(row, where), where);
    }
  }

  const std::string& name() const noexcept { return name_; }

 private:
  std::string_view text() const { return file_.text(); }

  /// Whether the file is one object over several lines.
  bool is_one_object(std::size_t begin) const {
    const auto over = [&](std::size_t place, int depth) { return depth == 0 && place > begin; };
    bool goes_on = false;
    scan(begin, [&](std::size_t place, int depth) {
      goes_on = depth > 0 && text()[place] == '\n';
      return goes_on || over(place, depth);
    });
    return goes_on && is_blank(text().substr(scan(begin, over)));
  }

  std::optional<Block> next_object() {
    if (place_ >= text().size()) return std::nullopt;
    const auto row = std::make_shared<std::string>(text().substr(place_));
    std::replace(row->begin(), row->end(), '\n', ' ');
    place_ = text().size();
    return Block{*row, row, line_};
  }

  std::optional<Block> next_lines() {
    if (place_ >= text().size()) return std::nullopt;
    const Block block{rest(), nullptr, line_};
    place_ += block.text.size();
    line_ += std::count(block.text.begin(), block.text.end(), '\n');
    return block;
  }

  /// The next block of whole lines.
  std::string_view rest() const {
    const auto left = text().substr(place_);
    if (left.size() <= kBlockBytes) return left;
    auto end = left.rfind('\n', kBlockBytes);
    if (end == std::string_view::npos) end = left.find('\n', kBlockBytes);
    return left.substr(0, end == std::string_view::npos ? end : end + 1);
  }

  std::optional<Block> next_elements() {
    auto rows = std::make_shared<std::string>();
    const auto first = elements_;
    while (!ended_ && rows->size() < kBlockBytes) add_element(*rows);
    if (rows->empty()) return std::nullopt;
    return Block{*rows, rows, first};
  }

  /// Appends the next element and consumes what follows it: a comma or the end of the list.
  void add_element(std::string& rows) {
    const auto end = element_end();
    const auto element = text().substr(place_, end - place_);
    place_ = end + 1;
    ended_ = text()[end] == ']';
    if (ended_ && elements_ == 0 && is_blank(element)) return check_end();
    const auto row = rows.insert(rows.end(), element.begin(), element.end());
    // A line break between values of an element becomes a space.
    std::replace(row, rows.end(), '\n', ' ');
    if (is_blank(element)) static_cast<void>(parse_value(element, element_name()));
    rows += '\n';
    ++elements_;
    if (ended_) check_end();
  }

  /// The first place outside of texts for which `stop(place, depth)` is true; the file's end if there is
  /// none.
  template <typename Stop>
  std::size_t scan(std::size_t place, const Stop& stop) const {
    int depth = 0;
    bool in_text = false;
    for (; place < text().size(); ++place) {
      const char one = text()[place];
      if (in_text) {
        if (one == '\\') ++place;
        in_text = one != '"';
      } else if (stop(place, depth)) {
        return place;
      } else {
        in_text = one == '"';
        depth += one == '{' || one == '[' ? 1 : one == '}' || one == ']' ? -1 : 0;
      }
    }
    return text().size();
  }

  std::size_t element_end() const {
    const auto end = scan(place_, [&](std::size_t place, int depth) {
      return depth == 0 && (text()[place] == ',' || text()[place] == ']');
    });
    if (end < text().size()) return end;
    static_cast<void>(parse_value(text().substr(place_), element_name()));
    fail_at("'" + name_ + "'", "it is not valid JSON: its list does not end");
  }

  void check_end() const {
    if (!is_blank(text().substr(place_)))
      fail_at("'" + name_ + "'", "it is not valid JSON: something follows its list");
  }

  std::string element_name() const { return fmt::format("element {} of '{}'", elements_, name_); }

  arrow_file::MappedFile file_;
  std::string name_;
  bool is_list_ = false;
  bool is_one_ = false;
  std::size_t place_ = 0;
  std::int64_t line_ = 1;
  std::int64_t elements_ = 0;
  bool ended_ = false;
};

/// Whether Arrow's parser may read the text. It checks neither UTF-8 nor a nesting of a thousand levels, and
/// reads invalid memory if a row is null instead of an object. Text rejected here is read by parse_value,
/// which is exact.
bool is_for_arrow(std::string_view text) {
  if (first_not_utf8(text) != std::string_view::npos || text.find('\0') != std::string_view::npos)
    return false;
  int depth = 0;
  bool in_text = false;
  for (std::size_t place = 0; place < text.size(); ++place) {
    const char one = text[place];
    if (one == '\n' && (in_text || depth != 0)) return false;
    if (in_text) {
      if (one == '\\') ++place;
      in_text = one != '"';
    } else if (depth == 0) {
      if (one == '{') depth = 1;
      if (one != '{' && !is_blank({&one, 1})) return false;
    } else {
      in_text = one == '"';
      if (one == '{' || one == '[') ++depth;
      if (one == '}' || one == ']') --depth;
      if (depth > static_cast<int>(json_tree::kDeepest)) return false;
    }
  }
  return depth == 0 && !in_text;
}

/// The rows as Arrow parses them, with the schema if there is one; null if Arrow rejects them.
std::shared_ptr<arrow::RecordBatch> parsed(const Block& block, const std::shared_ptr<arrow::Schema>& schema) {
  if (!is_for_arrow(block.text)) return nullptr;
  auto options = arrow::json::ParseOptions::Defaults();
  options.explicit_schema = schema;
  if (schema) options.unexpected_field_behavior = arrow::json::UnexpectedFieldBehavior::Error;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(block.text.data());
  auto batch = arrow::json::ParseOne(
      options, std::make_shared<arrow::Buffer>(bytes, static_cast<std::int64_t>(block.text.size())));
  return batch.ok() ? *std::move(batch) : nullptr;
}

void require_object(const Value& row, const std::string& where) {
  if (std::get_if<Value::Fields>(&row.variant()) == nullptr)
    fail_at(where, std::string("a row must be an object, but it is ") + row.kind());
}

void find_types(const Blocks& blocks, const Block& block, table::SchemaInference& finder) {
  if (const auto batch = parsed(block, nullptr)) {
    const arrow_file::Location place(blocks.name(), "its columns");
    auto found = finder;
    try {
      // Text that looks like a time stays text: whether all rows look like that is not known at the
      // beginning.
      found.add(table::with_times_as_text(
          DataType::struct_(arrow_file::schema_of(*batch->schema(), place).fields)));
      finder = std::move(found);
      return;
    } catch (const UsageError&) {
      // Continue row by row, so that the error names the line.
    }
  }
  blocks.each_row(block, [&](const Value& row, const std::string& where) {
    require_object(row, where);
    try {
      finder.add(row);
    } catch (const UsageError& error) {
      fail_at(where, std::string(error.what()) + ". Give the features, or make the file's rows alike");
    }
  });
}

Features inferred(const TextFile& file, Types types) {
  Blocks blocks(file);
  table::SchemaInference finder;
  while (const auto block = blocks.next()) {
    if (is_blank(block->text)) continue;
    find_types(blocks, *block, finder);
    if (types == Types::of_the_beginning) break;
  }
  return Features::from_fields(finder.type().fields());
}

/// Adds the fields that the features name. Rejects others, so that no data are lost silently.
void add_row(const Value& row, const Feature& whole, ColumnBuilder& builder, const std::string& where) {
  require_object(row, where);
  try {
    builder.append(table::converted(row, whole));
  } catch (const UsageError& error) {
    fail_at(where, error.what());
  }
}

bool has_classes(const Feature& feature) {
  const auto& children = feature.children();
  return feature.kind() == Feature::Kind::class_label || feature.kind() == Feature::Kind::other ||
         std::any_of(children.begin(), children.end(), has_classes);
}

class JsonRows final : public RowSource {
 public:
  JsonRows(const TextFile& file, const std::optional<Features>& features, Types types)
      : may_narrow_(!features && types == Types::of_the_beginning),
        features_(features ? *features : inferred(file, types)),
        blocks_(file) {
    whole_ = Feature::struct_(features_);
    // Arrow does not know class names and their range.
    if (!has_classes(whole_)) schema_ = arrow_file::to_arrow(features_.fields());
  }

  const Features& features() const override { return features_; }

  /// A file without rows has no columns.
  std::vector<ArrayPointer> next() override {
    while (ready_.empty() && read_some()) {
    }
    if (ready_.empty()) return {};
    auto columns = std::move(ready_.front());
    ready_.pop_front();
    return columns;
  }

 private:
  /// Reads one block per thread; false at the end.
  bool read_some() {
    std::vector<Block> some;
    while (some.size() < threads_) {
      auto block = blocks_.next();
      if (!block) break;
      if (!is_blank(block->text)) some.push_back(*std::move(block));
    }
    std::vector<std::vector<ArrayPointer>> read(some.size());
    parallel_for(some.size(), 1, threads_,
                 [&](std::size_t place, std::size_t) { read[place] = columns_of(some[place]); });
    std::move(read.begin(), read.end(), std::back_inserter(ready_));
    return !some.empty();
  }

  std::vector<ArrayPointer> columns_of(const Block& block) const {
    if (const auto batch = schema_ ? parsed(block, schema_) : nullptr) return columns_of(*batch);
    if (may_narrow_) throw TypesTooNarrow();
    ColumnBuilder builder(whole_.type());
    blocks_.each_row(
        block, [&](const Value& row, const std::string& where) { add_row(row, whole_, builder, where); });
    return arrow_file::fields_of(*builder.finish().flatten());
  }

  std::vector<ArrayPointer> columns_of(const arrow::RecordBatch& batch) const {
    const arrow_file::Location place(blocks_.name(), "its columns");
    std::vector<ArrayPointer> columns;
    for (const auto& [name, feature] : features_.items())
      columns.push_back(arrow_file::plain_array(batch.GetColumnByName(name)->data(), place));
    return columns;
  }

  bool may_narrow_;
  Features features_;
  Feature whole_;
  std::shared_ptr<arrow::Schema> schema_;
  Blocks blocks_;
  std::size_t threads_ = static_cast<std::size_t>(available_cpus(process_environment()));
  std::deque<std::vector<ArrayPointer>> ready_;
};

}  // namespace

std::unique_ptr<RowSource> json_rows(const TextFile& file, const std::optional<Features>& features,
                                     Types types) {
  return std::make_unique<JsonRows>(file, features, types);
}

}  // namespace lockstep::readers
