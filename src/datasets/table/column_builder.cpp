#include "lockstep/datasets/column_builder.hpp"

#include <arrow/builder.h>
#include <arrow/type_traits.h>
#include <arrow/util/float16.h>
#include <arrow/visit_type_inline.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "datasets/arrow/arrow_conversions.hpp"
#include "datasets/table/name_finder.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

/// An Arrow builder: its own, or a child of the builder of lists or structs that it belongs to.
struct ColumnBuilder::Node {
  DataType type;
  std::unique_ptr<arrow::ArrayBuilder> own;
  arrow::ArrayBuilder* builder = nullptr;
  std::vector<ColumnBuilder> children;

  template <typename Builder>
  Builder& as() const {
    return static_cast<Builder&>(*builder);
  }
};

namespace {

[[noreturn]] void refuse(const DataType& type, const std::string& what) {
  throw UsageError("a column of the type " + type.text() + " cannot take " + what +
                   ". Cast the column, or convert the value first.");
}

/// Refuses a structure with a field that the type does not have.
void require_fields(const DataType& type, const Value::Fields& fields) {
  const auto& own = type.fields();
  table::NameFinder known(own.size(), [&](std::size_t index) -> std::string_view { return own[index].name; });
  for (const auto& field : fields) {
    if (!known.find(field.first)) refuse(type, "a structure with the field '" + field.first + "'");
  }
}

bool holds_integers(const DataType& type) { return type.is_integer() || type.is_temporal(); }

void check_status(const arrow::Status& status, const DataType& type) {
  if (status.ok()) return;
  if (!status.IsCapacityError())
    throw Error(fmt::format("cannot add to a column of the type {}: {}.", type.text(), status.message()));
  throw UsageError(fmt::format(
      "the rows of a column of the type {} take more than 2^31 - 1 bytes or elements together: build "
      "it in pieces, or use the large type.",
      type.text()));
}

/// Appends a number to a builder of integers, dates or times, if it is in range.
template <typename Number>
struct IntegerAppender {
  arrow::ArrayBuilder& builder;
  Number value;
  bool fits = false;

  template <typename Type>
  arrow::Status Visit(const Type&) {
    if constexpr (arrow_file::StoredAsInteger<Type>) {
      using Stored = typename Type::c_type;
      fits = std::in_range<Stored>(value);
      if (fits) {
        return static_cast<typename arrow::TypeTraits<Type>::BuilderType&>(builder).Append(
            static_cast<Stored>(value));
      }
    }
    return arrow::Status::OK();
  }
};

/// Appends contiguous numbers of the builder's own type.
struct NumbersAppender {
  arrow::ArrayBuilder& builder;
  const void* values;
  std::int64_t count;

  template <typename Type>
  arrow::Status Visit(const Type&) {
    if constexpr (arrow_file::StoredAsInteger<Type> || arrow::is_floating_type<Type>::value) {
      if (count == 0) return arrow::Status::OK();  // Arrow would copy from null.
      return static_cast<typename arrow::TypeTraits<Type>::BuilderType&>(builder).AppendValues(
          static_cast<const typename Type::c_type*>(values), count);
    }
    return arrow::Status::TypeError("its elements are not numbers");
  }
};

}  // namespace

ColumnBuilder::ColumnBuilder(DataType type) : node_(std::make_unique<Node>()) {
  check_status(arrow::MakeBuilder(arrow::default_memory_pool(), type.arrow(), &node_->own), type);
  begin(std::move(type), *node_->own);
}
ColumnBuilder::ColumnBuilder(DataType type, arrow::ArrayBuilder& builder) : node_(std::make_unique<Node>()) {
  begin(std::move(type), builder);
}
ColumnBuilder::~ColumnBuilder() = default;
ColumnBuilder::ColumnBuilder(ColumnBuilder&&) noexcept = default;
ColumnBuilder& ColumnBuilder::operator=(ColumnBuilder&&) noexcept = default;

void ColumnBuilder::begin(DataType type, arrow::ArrayBuilder& builder) {
  node_->type = std::move(type);
  node_->builder = &builder;
  const auto& fields = node_->type.fields();
  for (std::size_t index = 0; index < fields.size(); ++index) {
    auto& child = node_->type.kind() == TypeKind::struct_
                      ? *node_->as<arrow::StructBuilder>().field_builder(static_cast<int>(index))
                  : node_->type.kind() == TypeKind::list ? *node_->as<arrow::ListBuilder>().value_builder()
                  : node_->type.kind() == TypeKind::large_list
                      ? *node_->as<arrow::LargeListBuilder>().value_builder()
                      : *node_->as<arrow::FixedSizeListBuilder>().value_builder();
    node_->children.push_back(ColumnBuilder(fields[index].type, child));
  }
}

const DataType& ColumnBuilder::type() const noexcept { return node_->type; }
std::int64_t ColumnBuilder::size() const noexcept { return node_->builder->length(); }

std::size_t ColumnBuilder::bytes() const noexcept {
  const auto kind = type().kind();
  const bool large = kind == TypeKind::large_utf8 || kind == TypeKind::large_binary;
  // One validity bit per row.
  auto count = static_cast<std::size_t>(size()) * std::max<std::size_t>(type().value_bytes(), 4) +
               static_cast<std::size_t>(size()) / 8;
  if (type().is_text_or_binary()) {
    count += static_cast<std::size_t>(large ? node_->as<arrow::LargeBinaryBuilder>().value_data_length()
                                            : node_->as<arrow::BinaryBuilder>().value_data_length());
  }
  for (const auto& child : node_->children) count += child.bytes();
  return count;
}

void ColumnBuilder::append_null() { check_status(node_->builder->AppendNull(), type()); }

void ColumnBuilder::append(bool value) {
  if (type().kind() != TypeKind::boolean) refuse(type(), value ? "the value true" : "the value false");
  check_status(node_->as<arrow::BooleanBuilder>().Append(value), type());
}

template <typename Number>
void ColumnBuilder::append_integer(Number value) {
  if (type().is_floating()) {
    // Integers up to this are exact; Arrow refuses others.
    const auto most = std::int64_t{1} << (type().kind() == TypeKind::float64   ? 53
                                          : type().kind() == TypeKind::float32 ? 24
                                                                               : 11);
    if (std::cmp_less(value, -most) || std::cmp_greater(value, most))
      refuse(type(), fmt::format("the number {}, which it cannot represent exactly", value));
    return append(static_cast<double>(value));
  }
  if (!holds_integers(type())) refuse(type(), fmt::format("the number {}", value));
  IntegerAppender<Number> appender{*node_->builder, value};
  check_status(arrow::VisitTypeInline(*node_->builder->type(), &appender), type());
  if (!appender.fits) refuse(type(), fmt::format("the number {}, which is out of its range", value));
}

void ColumnBuilder::append_signed(std::int64_t value) { append_integer(value); }
void ColumnBuilder::append_unsigned(std::uint64_t value) { append_integer(value); }

void ColumnBuilder::append(double value) {
  if (holds_integers(type())) {
    constexpr double kEdge = 9223372036854775808.0;
    if (std::trunc(value) != value || !(value >= -kEdge && value < kEdge))
      refuse(type(), fmt::format("the number {}", value));
    return append_signed(static_cast<std::int64_t>(value));
  }
  if (!type().is_floating()) refuse(type(), fmt::format("the number {}", value));
  const auto add = [&] {
    if (type().kind() == TypeKind::float64) return node_->as<arrow::DoubleBuilder>().Append(value);
    if (type().kind() == TypeKind::float32)
      return node_->as<arrow::FloatBuilder>().Append(static_cast<float>(value));
    return node_->as<arrow::HalfFloatBuilder>().Append(arrow::util::Float16(value).bits());
  };
  check_status(add(), type());
}

void ColumnBuilder::append(std::string_view value) {
  const auto kind = type().kind();
  if (kind == TypeKind::fixed_size_binary && value.size() != static_cast<std::size_t>(type().width()))
    refuse(type(), fmt::format("{} bytes", value.size()));
  const auto add = [&] {
    if (kind == TypeKind::utf8 || kind == TypeKind::binary)
      return node_->as<arrow::BinaryBuilder>().Append(value);
    if (kind == TypeKind::large_utf8 || kind == TypeKind::large_binary)
      return node_->as<arrow::LargeBinaryBuilder>().Append(value);
    if (kind == TypeKind::fixed_size_binary) return node_->as<arrow::FixedSizeBinaryBuilder>().Append(value);
    refuse(type(), "the text '" + std::string(value.substr(0, 60)) + "'");
  };
  check_status(add(), type());
}

void ColumnBuilder::append(const Value& value) {
  if (value.is_null()) return append_null();
  if (const auto* one = std::get_if<bool>(&value.variant())) return append(*one);
  if (const auto* one = std::get_if<std::int64_t>(&value.variant())) return append_signed(*one);
  if (const auto* one = std::get_if<std::uint64_t>(&value.variant())) return append_unsigned(*one);
  if (const auto* one = std::get_if<double>(&value.variant())) return append(*one);
  if (const auto* one = std::get_if<std::string>(&value.variant())) return append(std::string_view(*one));
  if (const auto* one = std::get_if<Bytes>(&value.variant())) return append(std::string_view(one->data));
  if (const auto* one = std::get_if<Value::List>(&value.variant())) {
    if (!type().is_list()) refuse(type(), "a list");
    return append_list(std::span<const Value>(*one));
  }
  append_fields(value.fields());
}

void ColumnBuilder::append_fields(const Value::Fields& fields) {
  if (type().kind() != TypeKind::struct_) refuse(type(), "a structure");
  const auto& own = type().fields();
  table::NameFinder given(fields.size(),
                          [&](std::size_t index) -> std::string_view { return fields[index].first; });
  std::vector<const Value*> found(own.size(), nullptr);
  std::size_t used = 0;
  for (std::size_t index = 0; index < own.size(); ++index) {
    const auto at = given.find(own[index].name);
    if (at) found[index] = &fields[*at].second;
    used += at ? 1 : 0;
  }
  if (used < fields.size()) require_fields(type(), fields);
  for (std::size_t index = 0; index < own.size(); ++index) {
    auto& child = node_->children[index];
    if (found[index] != nullptr) {
      child.append(*found[index]);
    } else {
      child.append_null();
    }
  }
  check_status(node_->as<arrow::StructBuilder>().Append(), type());
}

const DataType& ColumnBuilder::element_type() const {
  if (!type().is_list()) refuse(type(), "a list");
  return type().element();
}

void ColumnBuilder::begin_list(std::size_t count) {
  if (!type().is_list()) refuse(type(), "a list");
  if (type().width() != 0 && count != static_cast<std::size_t>(type().width()))
    refuse(type(), fmt::format("a list of {} elements", count));
  const auto length = static_cast<std::int64_t>(count);
  const auto add = [&] {
    if (type().kind() == TypeKind::list) return node_->as<arrow::ListBuilder>().Append(true, length);
    if (type().kind() == TypeKind::large_list)
      return node_->as<arrow::LargeListBuilder>().Append(true, length);
    return node_->as<arrow::FixedSizeListBuilder>().Append();
  };
  check_status(add(), type());
}

void ColumnBuilder::append_elements(const void* values, std::size_t count) {
  begin_list(count);
  auto& child = *elements().node_->builder;
  NumbersAppender appender{child, values, static_cast<std::int64_t>(count)};
  check_status(arrow::VisitTypeInline(*child.type(), &appender), type());
}

ColumnBuilder& ColumnBuilder::elements() { return node_->children.front(); }

Column ColumnBuilder::finish() {
  ArrayPointer array;
  check_status(node_->builder->Finish(&array), type());
  return Column(array);
}

}  // namespace lockstep
