#include <arrow/array.h>
#include <arrow/buffer.h>
#include <arrow/json/options.h>
#include <arrow/json/reader.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <exception>

#include "core/available_cpus.hpp"
#include "core/json.hpp"
#include "core/parallel_for.hpp"
#include "core/utf8_check.hpp"
#include "datasets/arrow/arrow_conversions.hpp"
#include "datasets/arrow/validation.hpp"
#include "datasets/readers/json_blocks.hpp"
#include "datasets/readers/json_settler.hpp"
#include "datasets/readers/json_values.hpp"
#include "datasets/readers/readers.hpp"
#include "datasets/readers/rounding.hpp"
#include "datasets/table/convert.hpp"
#include "datasets/table/json_feature.hpp"
#include "datasets/table/name_finder.hpp"
#include "datasets/table/schema_inference.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/datasets/column_builder.hpp"

namespace lockstep::readers {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;

[[noreturn]] void fail_at(const std::string& where, const std::string& what) {
  throw DataError(where + ": " + what + ".");
}

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n") == std::string_view::npos; }

/// What one pass over a text finds out.
struct TextFacts {
  /// Whether Arrow's parser may read the text. It checks neither UTF-8 nor a nesting of a thousand levels,
  /// and reads invalid memory if a row is null instead of an object. Text rejected here is read by
  /// parse_json, which is exact.
  bool is_for_arrow = false;
  /// Digits of the longest integer; a fraction's may count, too.
  std::size_t longest_integer = 0;
};

TextFacts facts_of(std::string_view text) {
  TextFacts facts;
  if (first_not_utf8(text) != std::string_view::npos || text.find('\0') != std::string_view::npos)
    return facts;
  int depth = 0;
  std::size_t digits = 0;
  for (std::size_t index = 0; index < text.size(); ++index) {
    const char one = text[index];
    if (depth == 0) {
      if (one == '{') depth = 1;
      if (one != '{' && !is_blank({&one, 1})) return facts;
      continue;
    }
    if (one >= '0' && one <= '9') {
      ++digits;
      continue;
    }
    if (digits > 0 && one != '.' && one != 'e' && one != 'E')
      facts.longest_integer = std::max(facts.longest_integer, digits);
    digits = 0;
    if (one == '"') {
      const auto end = find_closing_quote(text, index + 1);
      if (text.substr(index, end - index).find('\n') != std::string_view::npos) return facts;
      index = end;
    } else if (one == '{' || one == '[') {
      if (++depth > static_cast<int>(json_tree::kDeepest)) return facts;
    } else if (one == '}' || one == ']') {
      --depth;
    } else if (one == '\n') {
      return facts;
    }
  }
  facts.is_for_arrow = depth == 0;
  return facts;
}

/// Whether a float64 in the array, at any depth, is so large that it may be an integer that was rounded.
bool has_large_reals(const arrow::ArrayData& array) {
  if (array.type->id() == arrow::Type::DOUBLE) {
    constexpr double kExact = 9007199254740992.0;
    const auto* values = array.GetValues<double>(1);
    return std::any_of(values, values + array.length, [](double one) { return std::fabs(one) >= kExact; });
  }
  return std::any_of(array.child_data.begin(), array.child_data.end(),
                     [](const auto& child) { return has_large_reals(*child); });
}

/// The rows as Arrow parses them.
struct ArrowRows {
  /// Null if Arrow rejects the text, or what it returns is not used.
  std::shared_ptr<arrow::RecordBatch> batch = nullptr;
  bool is_rejected = true;
};

/// Parses by Arrow, with the schema if there is one.
ArrowRows parse_by_arrow(std::string_view text, const std::shared_ptr<arrow::Schema>& schema) {
  const auto facts = facts_of(text);
  if (!facts.is_for_arrow) return {};
  auto options = arrow::json::ParseOptions::Defaults();
  options.explicit_schema = schema;
  if (schema) options.unexpected_field_behavior = arrow::json::UnexpectedFieldBehavior::Error;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(text.data());
  const auto read = arrow::json::ParseOne(
      options, std::make_shared<arrow::Buffer>(bytes, static_cast<std::int64_t>(text.size())));
  if (!read.ok()) return {};
  arrow::ArrayDataVector columns;
  for (const auto& column : (*read)->column_data()) {
    columns.push_back(arrow_file::with_null_lengths(column));
    if (!arrow_file::damage_of(*columns.back()).empty()) return {nullptr, false};
    // Integers of 16 digits and more need not be float64s.
    if (facts.longest_integer >= 16 && has_large_reals(*columns.back())) return {nullptr, false};
  }
  return {arrow::RecordBatch::Make((*read)->schema(), (*read)->num_rows(), std::move(columns)), false};
}

void require_object(const Value& row, const std::string& where) {
  if (std::get_if<Value::Fields>(&row.variant()) == nullptr)
    fail_at(where, std::string("a row must be an object, but it is ") + row.kind());
}

/// Infers the types of a file's columns.
class JsonTypes {
 public:
  JsonTypes(const TextFile& file, const std::vector<std::string>& kept_as_json)
      : file_(file), kept_as_json_(kept_as_json) {}

  Features find(Types types) {
    // Arrow would look into the values that are kept as they are.
    read_blocks(types, kept_as_json_.empty());
    // Arrow's int64 does not tell whether there are negative numbers, which uint64 does not hold.
    if (used_arrow_ && has_kind(finder_.type(), TypeKind::uint64)) {
      finder_ = {};
      read_blocks(types, false);
    }
    auto items = Features::from_fields(finder_.type().fields()).items();
    for (auto& [name, feature] : items) {
      if (is_kept_as_json(name)) feature = table::json_feature();
    }
    return Features(std::move(items));
  }

 private:
  /// Small, as each object with a name of its own costs Arrow a value in every row of the block.
  static constexpr std::size_t kLookBytes = std::size_t{1} << 16;

  static bool has_kind(const DataType& type, TypeKind kind) {
    return type.kind() == kind || std::any_of(type.fields().begin(), type.fields().end(),
                                              [&](const Field& field) { return has_kind(field.type, kind); });
  }

  void read_blocks(Types types, bool by_arrow) {
    blocks_.emplace(file_, kLookBytes);
    rows_ = 0;
    std::size_t bytes = 0;
    for (auto block = next_block(); block; block = next_block()) {
      if (is_blank(block->text)) continue;
      if (!by_arrow || !add_by_arrow(*block)) add_rows(*block);
      bytes += block->text.size();
      require_bounded(bytes);
      const bool found = finder_.type().kind() == TypeKind::struct_;
      if (types == Types::of_the_beginning && found && bytes >= kBlockBytes) break;
    }
  }

  /// If lines may be left out, what cannot be cut into rows is the reader's to report, behind the rows
  /// before.
  std::optional<JsonBlock> next_block() {
    try {
      return blocks_->next();
    } catch (const DataError&) {
      if (!file_.take_bad) throw;
      return std::nullopt;
    }
  }

  /// False if Arrow cannot read the block, or its types do not fit: row by row, the error names the line.
  bool add_by_arrow(const JsonBlock& block) {
    const auto batch = parse_by_arrow(block.text, nullptr).batch;
    if (!batch) return false;
    const arrow_file::Location location(file_.name, "its columns");
    auto found = finder_;
    try {
      // Text that looks like a time stays text: whether all rows look like that is not known at the
      // beginning.
      const auto type = table::with_times_as_text(
          DataType::struct_(arrow_file::schema_of(*batch->schema(), location).fields));
      found.add(type);
    } catch (const UsageError&) {
      return false;
    }
    const auto whole = batch->ToStructArray();
    if (whole.ok()) found.count(*(*whole)->data());
    finder_ = std::move(found);
    used_arrow_ = true;
    rows_ += batch->num_rows();
    return true;
  }

  void add_rows(const JsonBlock& block) {
    blocks_->each_row(block, [&](std::string_view text, std::int64_t, const std::string& where) {
      if (!file_.take_bad) return add_row(finder_, text, where);
      auto found = finder_;
      try {
        add_row(found, text, where);
        finder_ = std::move(found);
      } catch (const DataError&) {
        // The reader leaves out the row, too, and reports it.
      }
    });
  }

  bool is_kept_as_json(const std::string& name) const {
    return std::find(kept_as_json_.begin(), kept_as_json_.end(), name) != kept_as_json_.end();
  }

  /// What the row tells about types: values that are kept as they are have none.
  Value typed(Value row) const {
    if (kept_as_json_.empty()) return row;
    Value::Fields fields = row.fields();
    for (auto& [name, field] : fields) {
      if (is_kept_as_json(name)) field = Value();
    }
    return Value(std::move(fields));
  }

  void add_row(table::SchemaInference& finder, std::string_view text, const std::string& where) {
    const auto row = parse_json(text, where);
    require_object(row, where);
    try {
      finder.add(typed(row));
    } catch (const UsageError& error) {
      fail_at(where, std::string(error.what()) + ". Give the features, or make the file's rows alike");
    }
    ++rows_;
  }

  /// Refuses columns that would take far more memory than the text: names that are data.
  void require_bounded(std::size_t bytes) const {
    constexpr double kFree = 64 << 20;
    constexpr double kLargest = 128;
    const auto needed = static_cast<double>(finder_.cells(rows_)) * sizeof(std::int64_t);
    if (needed <= std::max(kFree, kLargest * static_cast<double>(bytes))) return;
    const auto [path, names] = finder_.widest();
    const auto whose = path.empty() ? "its rows" : "the objects '" + path + "'";
    const auto* keep =
        path.empty() ? ""
                     : ", or give the column the type string in LoadOptions::features, which keeps the text";
    throw DataError(
        fmt::format("'{}' does not fit into columns: {} have {} different names in its first {} rows, and "
                    "few of them each, "
                    "so that {:.1f} MB of text become {:.1f} GB of columns. Names that are data, such as "
                    "ids, belong into "
                    "values: write a list of objects instead ([{{\"id\": ..., \"value\": ...}}, ...]){}.",
                    file_.name, whose, names, rows_, static_cast<double>(bytes) / 1e6, needed / 1e9, keep));
  }

  const TextFile& file_;
  const std::vector<std::string>& kept_as_json_;
  std::optional<JsonBlocks> blocks_;
  table::SchemaInference finder_;
  std::int64_t rows_ = 0;
  bool used_arrow_ = false;
};

bool has_classes(const Feature& feature) {
  const auto& children = feature.children();
  return feature.kind() == Feature::Kind::class_label || feature.kind() == Feature::Kind::other ||
         std::any_of(children.begin(), children.end(), has_classes);
}

/// What was read of a block: some rows, the lines that were left out, and then perhaps a failure.
struct JsonPiece {
  std::vector<ArrayPointer> columns = {};
  std::vector<std::pair<std::int64_t, std::string>> bad_lines = {};
  std::exception_ptr failure = nullptr;
};

class JsonRows final : public RowSource {
 public:
  JsonRows(TextFile file, const std::optional<Features>& features, Types types,
           const std::vector<std::string>& kept_as_json)
      : file_(std::move(file)),
        is_given_(features.has_value()),
        may_narrow_(!features && types == Types::of_the_beginning),
        features_(features ? *features : JsonTypes(file_, kept_as_json).find(types)),
        blocks_(file_, kBlockBytes) {
    whole_ = Feature::struct_(features_);
    // Arrow does not know class names and their range.
    if (!has_classes(whole_)) schema_ = arrow_file::to_arrow(features_.fields());
  }

  const Features& features() const override { return features_; }

  /// A file without rows has no columns. What goes wrong in a block is thrown behind the rows before it, so
  /// that they do not depend on how many blocks are read at once.
  std::vector<ArrayPointer> next() override {
    while (!ready_.empty() || read_some()) {
      auto& piece = ready_.front();
      for (const auto& [line, reason] : std::exchange(piece.bad_lines, {})) file_.take_bad(line, reason);
      if (!piece.columns.empty()) return std::exchange(piece.columns, {});
      const auto failure = piece.failure;
      ready_.pop_front();
      if (failure) std::rethrow_exception(failure);
    }
    return {};
  }

 private:
  /// Reads one block per thread; false at the end.
  bool read_some() {
    std::vector<JsonBlock> some;
    std::exception_ptr failure;
    try {
      while (some.size() < threads_) {
        auto block = blocks_.next();
        if (!block) break;
        if (!is_blank(block->text)) some.push_back(*std::move(block));
      }
    } catch (const DataError&) {
      failure = std::current_exception();
    }
    const auto first = ready_.size();
    ready_.resize(first + some.size());
    parallel_for(some.size(), 1, threads_,
                 [&](std::size_t index, std::size_t) { ready_[first + index] = piece_of(some[index]); });
    if (failure) ready_.push_back({.failure = failure});
    return !ready_.empty();
  }

  JsonPiece piece_of(const JsonBlock& block) const {
    JsonPiece piece;
    try {
      const auto read = schema_ ? parse_by_arrow(block.text, schema_) : ArrowRows();
      if (read.batch) {
        piece.columns = columns_of(*read.batch);
      } else if (may_narrow_ && read.is_rejected && !file_.take_bad) {
        throw TypesTooNarrow();
      } else {
        add_rows(block, piece);
      }
    } catch (...) {
      piece.failure = std::current_exception();
    }
    return piece;
  }

  std::vector<ArrayPointer> columns_of(const arrow::RecordBatch& batch) const {
    const arrow_file::Location location(blocks_.name(), "its columns");
    std::vector<ArrayPointer> columns;
    for (const auto& [name, feature] : features_.items())
      columns.push_back(arrow_file::plain_array(batch.GetColumnByName(name)->data(), location));
    return columns;
  }

  /// Reads row by row. Throws DataError for the first row that cannot be read, unless such are left out.
  void add_rows(const JsonBlock& block, JsonPiece& piece) const {
    ColumnBuilder builder(whole_.type());
    ColumnBuilder trial(whole_.type());
    table::SchemaInference types;
    types.add(whole_.type());
    blocks_.each_row(block, [&](std::string_view text, std::int64_t number, const std::string& where) {
      if (!file_.take_bad) return append_or_fail(builder, row_of(text, where), where);
      try {
        if (!is_given_) require_types(types, text, where);
        const auto row = row_of(text, where);
        // A row that does not fit may leave some of its fields behind.
        append_or_fail(trial, row, where);
        builder.append(row);
      } catch (const DataError& error) {
        trial = ColumnBuilder(whole_.type());
        piece.bad_lines.emplace_back(number, error.what());
      }
    });
    if (may_narrow_ && !(types.type() == whole_.type())) {
      piece.bad_lines.clear();
      throw TypesTooNarrow();
    }
    if (builder.size() > 0) piece.columns = arrow_file::fields_of(*builder.finish().flatten());
  }

  static void append_or_fail(ColumnBuilder& builder, const Value& row, const std::string& where) try {
    builder.append(row);
  } catch (const UsageError& error) {
    fail_at(where, error.what());
  }

  /// Adds the row's types to those of the rows before. Throws DataError if they do not fit.
  static void require_types(table::SchemaInference& types, std::string_view text, const std::string& where) {
    const auto row = parse_json(text, where);
    require_object(row, where);
    auto wider = types;
    try {
      wider.add(row);
    } catch (const UsageError& error) {
      fail_at(where, error.what());
    }
    types = std::move(wider);
  }

  /// The row with the fields that the features name. Rejects others, so that no data are lost silently.
  Value row_of(std::string_view text, const std::string& where) const {
    const auto row = parse_json(text, where, LongIntegers::as_digits);
    require_object(row, where);
    const auto& items = features_.items();
    table::NameFinder columns(items.size(),
                              [&](std::size_t index) -> std::string_view { return items[index].first; });
    Value::Fields fields;
    fields.reserve(row.fields().size());
    try {
      for (const auto& [name, field] : row.fields()) {
        const auto found = columns.find(name);
        const auto warn = [&, column = &name](std::string_view integer, double number) {
          warn_rounded(file_.name, where, *column, integer, number);
        };
        fields.emplace_back(name, found ? settled_json(field, items[*found].second, warn) : field);
      }
      return table::convert_value(Value(std::move(fields)), whole_);
    } catch (const UsageError& error) {
      fail_at(where, error.what());
    }
  }

  TextFile file_;
  bool is_given_;
  bool may_narrow_;
  Features features_;
  Feature whole_;
  std::shared_ptr<arrow::Schema> schema_;
  JsonBlocks blocks_;
  std::size_t threads_ = static_cast<std::size_t>(available_cpus(process_environment()));
  std::deque<JsonPiece> ready_;
};

}  // namespace

std::unique_ptr<RowSource> json_rows(const TextFile& file, const std::optional<Features>& features,
                                     Types types, const std::vector<std::string>& kept_as_json) {
  // Without Arrow's parser, whether a row fits the types of the beginning is not known before it is read.
  return std::make_unique<JsonRows>(file, features, kept_as_json.empty() ? types : Types::of_all_rows,
                                    kept_as_json);
}

}  // namespace lockstep::readers
