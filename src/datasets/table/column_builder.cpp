#include "lockstep/datasets/column_builder.hpp"

#include <cmath>
#include <cstring>
#include <limits>

#include "half.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

struct ColumnBuilder::Node {
  explicit Node(DataType given) : type(std::move(given)) {
    for (const auto& field : type.fields()) children.emplace_back(field.type);
  }

  DataType type;
  std::int64_t length = 0;
  std::int64_t nulls = 0;
  std::vector<std::uint8_t> validity;
  std::vector<std::uint8_t> values;
  std::vector<std::int64_t> ends;
  std::vector<ColumnBuilder> children;

  void count_row(bool is_valid);
  void put(const void* data, std::size_t count);
  template <typename T>
  void put_number(T value) {
    put(&value, sizeof value);
  }
  bool has_ends() const { return type.is_text_or_binary() || (type.is_list() && type.width() == 0); }
};

namespace {

[[noreturn]] void refuse(const DataType& type, const std::string& what) {
  throw UsageError("a column of the type " + type.text() + " cannot take " + what +
                   ". Cast the column, or convert the value first.");
}

std::string shown(double value) {
  std::string text = std::to_string(value);
  return std::isfinite(value) ? text : (std::isnan(value) ? "NaN" : text);
}

/// Whether integers of the type go from `least` to `most`, in 128 bits so that both signs of 64 fit.
struct Limits {
  __extension__ using Wide = __int128;
  Wide least;
  Wide most;
};

Limits limits_of(const DataType& type) {
  const auto bits = static_cast<int>(type.value_bytes() * 8);
  if (type.kind() >= TypeKind::uint8 && type.kind() <= TypeKind::uint64) {
    return {0, (Limits::Wide{1} << bits) - 1};
  }
  return {-(Limits::Wide{1} << (bits - 1)), (Limits::Wide{1} << (bits - 1)) - 1};
}

bool holds_integers(const DataType& type) {
  return type.is_integer() || (type.kind() >= TypeKind::date32 && !type.is_decimal());
}

std::size_t offset_bytes(TypeKind kind) {
  const bool large =
      kind == TypeKind::large_utf8 || kind == TypeKind::large_binary || kind == TypeKind::large_list;
  return large ? sizeof(std::int64_t) : sizeof(std::int32_t);
}

Buffer narrow_offsets(const std::vector<std::int64_t>& ends, const DataType& type) {
  if (ends.back() > std::numeric_limits<std::int32_t>::max()) {
    throw UsageError("the rows of a column of the type " + type.text() +
                     " take more than 2^31 - 1 bytes or elements together: build it in pieces, or use the "
                     "large type.");
  }
  return Buffer::of(std::vector<std::int32_t>(ends.begin(), ends.end()));
}

}  // namespace

void ColumnBuilder::Node::count_row(bool is_valid) {
  if ((length & 7) == 0) validity.push_back(0);
  if (is_valid) validity.back() |= static_cast<std::uint8_t>(1U << (length & 7));
  nulls += is_valid ? 0 : 1;
  ++length;
  if (type.is_text_or_binary()) ends.push_back(static_cast<std::int64_t>(values.size()));
  if (type.is_list() && type.width() == 0) ends.push_back(children.front().size());
}

void ColumnBuilder::Node::put(const void* data, std::size_t count) {
  const auto* bytes = static_cast<const std::uint8_t*>(data);
  if (count > 0) values.insert(values.end(), bytes, bytes + count);
}

ColumnBuilder::ColumnBuilder(DataType type) : node_(std::make_unique<Node>(std::move(type))) {}
ColumnBuilder::~ColumnBuilder() = default;
ColumnBuilder::ColumnBuilder(ColumnBuilder&&) noexcept = default;
ColumnBuilder& ColumnBuilder::operator=(ColumnBuilder&&) noexcept = default;

const DataType& ColumnBuilder::type() const noexcept { return node_->type; }
std::int64_t ColumnBuilder::size() const noexcept { return node_->length; }

std::size_t ColumnBuilder::bytes() const noexcept {
  auto count =
      node_->validity.size() + node_->values.size() + node_->ends.size() * offset_bytes(type().kind());
  for (const auto& child : node_->children) count += child.bytes();
  return count;
}

void ColumnBuilder::append_null() {
  auto& node = *node_;
  if (node.type.kind() == TypeKind::boolean && (node.length & 7) == 0) node.values.push_back(0);
  node.values.resize(node.values.size() + node.type.value_bytes());
  const auto rows = node.type.kind() == TypeKind::struct_ ? 1 : node.type.is_list() ? node.type.width() : 0;
  for (auto& child : node.children) {
    for (std::int32_t row = 0; row < rows; ++row) child.append_null();
  }
  node.count_row(false);
}

void ColumnBuilder::append(bool value) {
  auto& node = *node_;
  if (node.type.kind() != TypeKind::boolean) refuse(type(), value ? "the value true" : "the value false");
  if ((node.length & 7) == 0) node.values.push_back(0);
  if (value) node.values.back() |= static_cast<std::uint8_t>(1U << (node.length & 7));
  node.count_row(true);
}

void ColumnBuilder::append_signed(std::int64_t value) {
  if (type().is_floating()) return append(static_cast<double>(value));
  if (!holds_integers(type())) refuse(type(), "the number " + std::to_string(value));
  const auto limits = limits_of(type());
  if (value < limits.least || value > limits.most) {
    refuse(type(), "the number " + std::to_string(value) + ", which is out of its range");
  }
  // Little-endian: the low bytes come first.
  node_->put(&value, type().value_bytes());
  node_->count_row(true);
}

void ColumnBuilder::append_unsigned(std::uint64_t value) {
  if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return append_signed(static_cast<std::int64_t>(value));
  }
  if (type().is_floating()) return append(static_cast<double>(value));
  if (type().kind() != TypeKind::uint64) refuse(type(), "the number " + std::to_string(value));
  node_->put_number(value);
  node_->count_row(true);
}

void ColumnBuilder::append(double value) {
  const auto kind = type().kind();
  if (holds_integers(type())) {
    constexpr double kEdge = 9223372036854775808.0;
    if (std::trunc(value) != value || !(value >= -kEdge && value < kEdge))
      refuse(type(), "the number " + shown(value));
    return append_signed(static_cast<std::int64_t>(value));
  }
  if (!type().is_floating()) refuse(type(), "the number " + shown(value));
  if (kind == TypeKind::float64) node_->put_number(value);
  if (kind == TypeKind::float32) node_->put_number(static_cast<float>(value));
  if (kind == TypeKind::float16) node_->put_number(table::float_to_half(value));
  node_->count_row(true);
}

void ColumnBuilder::append(std::string_view value) {
  if (type().kind() == TypeKind::fixed_size_binary &&
      value.size() != static_cast<std::size_t>(type().width())) {
    refuse(type(), std::to_string(value.size()) + " bytes");
  }
  if (!type().is_text_or_binary() && type().kind() != TypeKind::fixed_size_binary) {
    refuse(type(), "the text '" + std::string(value.substr(0, 60)) + "'");
  }
  node_->put(value.data(), value.size());
  node_->count_row(true);
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
  for (const auto& [name, value] : fields) {
    bool known = false;
    for (const auto& field : type().fields()) known = known || field.name == name;
    if (!known) refuse(type(), "a structure with the field '" + name + "'");
  }
  for (std::size_t place = 0; place < node_->children.size(); ++place) {
    const Value* found = nullptr;
    for (const auto& [name, value] : fields) {
      if (name == type().fields()[place].name) found = &value;
    }
    auto& child = node_->children[place];
    if (found != nullptr) {
      child.append(*found);
    } else {
      child.append_null();
    }
  }
  node_->count_row(true);
}

const DataType& ColumnBuilder::element_type() const {
  if (!type().is_list()) refuse(type(), "a list");
  return type().element();
}

void ColumnBuilder::check_list(std::size_t count) const {
  if (!type().is_list()) refuse(type(), "a list");
  if (type().width() != 0 && count != static_cast<std::size_t>(type().width())) {
    refuse(type(), "a list of " + std::to_string(count) + " elements");
  }
}

void ColumnBuilder::append_elements(const void* values, std::size_t count) {
  check_list(count);
  auto& child = *node_->children.front().node_;
  child.put(values, count * child.type.value_bytes());
  for (std::size_t row = 0; row < count; ++row) child.count_row(true);
  node_->count_row(true);
}

ColumnBuilder& ColumnBuilder::elements() { return node_->children.front(); }

void ColumnBuilder::close_list() { node_->count_row(true); }

ArrayPointer ColumnBuilder::take() {
  auto node = std::make_unique<Node>(node_->type);
  std::swap(node, node_);
  ArrayData array;
  array.type = node->type;
  array.length = node->length;
  array.null_count = node->type.kind() == TypeKind::null ? node->length : node->nulls;
  if (node->type.kind() != TypeKind::null && node->nulls > 0)
    array.validity = Buffer::of(std::move(node->validity));
  if (node->has_ends()) {
    node->ends.insert(node->ends.begin(), 0);
    array.offsets = offset_bytes(node->type.kind()) == sizeof(std::int64_t)
                        ? Buffer::of(std::move(node->ends))
                        : narrow_offsets(node->ends, node->type);
  }
  array.values = Buffer::of(std::move(node->values));
  for (auto& child : node->children) array.children.push_back(child.take());
  return std::make_shared<const ArrayData>(std::move(array));
}

Column ColumnBuilder::finish() { return Column(take()); }

}  // namespace lockstep
