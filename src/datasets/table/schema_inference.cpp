#include "schema_inference.hpp"

#include <fmt/core.h>

#include <algorithm>

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

SchemaInference& SchemaInference::child(const std::string& name) {
  const auto found = std::find_if(children_.begin(), children_.end(),
                                  [&](const auto& child) { return child.first == name; });
  return found != children_.end() ? found->second : children_.emplace_back(name, SchemaInference()).second;
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
  if (kind_ == TypeKind::list) {
    auto& elements = child("item");
    for (const auto& element : value.list()) elements.add(element);
  }
  if (kind_ != TypeKind::struct_) return;
  for (const auto& [name, field] : value.fields()) add_field(name, field);
}

void SchemaInference::add(const DataType& type) {
  if (type.kind() == TypeKind::null) return;
  widen(type.kind());
  if (type.is_list()) child("item").add(type.element());
  if (type.kind() != TypeKind::struct_) return;
  for (const auto& field : type.fields()) add_field(field.name, field.type);
}

DataType SchemaInference::type() const {
  if (kind_ == TypeKind::list) return DataType::list(children_.front().second.type());
  if (kind_ != TypeKind::struct_) return DataType(kind_);
  std::vector<Field> fields;
  for (const auto& [name, child] : children_) fields.push_back({name, child.type()});
  return DataType::struct_(std::move(fields));
}

}  // namespace lockstep::table
