#include "datasets/table/schema_inference.hpp"

#include <arrow/array/data.h>
#include <arrow/type.h>
#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "lockstep/core/error.hpp"

namespace lockstep::table {
namespace {

/// Of the alternatives of Value.
constexpr TypeKind kKinds[] = {TypeKind::null,   TypeKind::boolean, TypeKind::int64,
                               TypeKind::uint64, TypeKind::float64, TypeKind::utf8,
                               TypeKind::binary, TypeKind::list,    TypeKind::struct_};

std::string name_of(TypeKind kind) {
  if (kind == TypeKind::list) return "list";
  return kind == TypeKind::struct_ ? "struct" : DataType(kind).text();
}

}  // namespace

void SchemaInference::widen(TypeKind found) {
  const auto is_number = [](TypeKind kind) { return kind >= TypeKind::int64 && kind <= TypeKind::float64; };
  if (kind_ == TypeKind::null || kind_ == found) {
    kind_ = found;
  } else if (is_number(kind_) && is_number(found)) {
    kind_ = std::max(kind_, found);
  } else {
    throw UsageError(fmt::format("it is {}, but was {} before", name_of(found), name_of(kind_)));
  }
}

std::size_t SchemaInference::index_of(const std::string& name) {
  constexpr std::size_t kFew = 16;
  if (next_ < children_.size() && children_[next_].first == name) return next_;
  if (children_.size() <= kFew) {
    const auto found = std::find_if(children_.begin(), children_.end(),
                                    [&](const auto& child) { return child.first == name; });
    return static_cast<std::size_t>(found - children_.begin());
  }
  for (auto position = indices_.size(); position < children_.size(); ++position)
    indices_.emplace(children_[position].first, position);
  const auto known = indices_.find(name);
  return known == indices_.end() ? children_.size() : known->second;
}

SchemaInference& SchemaInference::child(const std::string& name) {
  const auto position = index_of(name);
  if (position == children_.size()) children_.emplace_back(name, SchemaInference());
  next_ = position + 1;
  return children_[position].second;
}

template <typename Inner>
void SchemaInference::add_field(const std::string& name, const Inner& inner) {
  try {
    child(name).add(inner);
  } catch (const UsageError& error) {
    throw UsageError("field '" + name + "': " + error.what());
  }
}

void SchemaInference::add(const Value& value) {
  if (value.is_null()) return;
  widen(kKinds[value.variant().index()]);
  if (const auto* number = std::get_if<std::int64_t>(&value.variant())) negative_ = negative_ || *number < 0;
  if (kind_ == TypeKind::list) {
    auto& elements = child("item");
    for (const auto& element : value.list()) elements.add(element);
    elements_ += std::ssize(value.list());
  }
  if (kind_ != TypeKind::struct_) return;
  next_ = 0;
  for (const auto& [name, field] : value.fields()) add_field(name, field);
}

void SchemaInference::add(const DataType& type) {
  if (type.kind() == TypeKind::null) return;
  widen(type.kind());
  if (type.is_list()) child("item").add(type.element());
  if (type.kind() != TypeKind::struct_) return;
  next_ = 0;
  for (const auto& field : type.fields()) add_field(field.name, field.type);
}

void SchemaInference::count(const arrow::ArrayData& array) {
  if (kind_ == TypeKind::list && !array.child_data.empty()) {
    elements_ += array.child_data.front()->length;
    child("item").count(*array.child_data.front());
  }
  if (kind_ != TypeKind::struct_) return;
  next_ = 0;
  for (std::size_t position = 0; position < array.child_data.size(); ++position)
    child(array.type->field(static_cast<int>(position))->name()).count(*array.child_data[position]);
}

DataType SchemaInference::type() const {
  if (kind_ == TypeKind::list) return DataType::list(children_.front().second.type());
  // No type of integers holds both.
  if (kind_ == TypeKind::uint64 && negative_) return DataType(TypeKind::float64);
  if (kind_ != TypeKind::struct_) return DataType(kind_);
  std::vector<Field> fields;
  for (const auto& [name, child] : children_) fields.push_back({name, child.type()});
  return DataType::struct_(std::move(fields));
}

std::int64_t SchemaInference::cells(std::int64_t rows) const {
  if (kind_ == TypeKind::list) return rows + children_.front().second.cells(elements_);
  if (kind_ != TypeKind::struct_) return rows;
  std::int64_t sum = 0;
  for (const auto& field : children_) sum += field.second.cells(rows);
  return sum;
}

std::pair<std::string, std::size_t> SchemaInference::widest() const {
  std::pair<std::string, std::size_t> most{"", kind_ == TypeKind::struct_ ? children_.size() : 0};
  for (const auto& [name, inner] : children_) {
    auto [path, width] = inner.widest();
    if (width <= most.second) continue;
    // An element of a list has no name of its own.
    if (kind_ == TypeKind::struct_) path = path.empty() ? name : fmt::format("{}.{}", name, path);
    most = {std::move(path), width};
  }
  return most;
}

}  // namespace lockstep::table
