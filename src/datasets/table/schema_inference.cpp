#include "schema_inference.hpp"

#include <algorithm>

#include "lockstep/core/error.hpp"

namespace lockstep::table {
namespace {

constexpr const char* kNames[] = {"null",   "bool",   "int64", "uint64", "float64",
                                  "string", "binary", "list",  "struct"};

}  // namespace

SchemaInference::Kind SchemaInference::kind_of(const Value& value) {
  return static_cast<Kind>(value.variant().index());
}

void SchemaInference::widen(Kind found) {
  const auto is_number = [](Kind kind) { return kind >= Kind::int64 && kind <= Kind::float64; };
  if (kind_ == Kind::null || kind_ == found) {
    kind_ = found;
  } else if (is_number(kind_) && is_number(found)) {
    kind_ = std::max(kind_, found);
  } else {
    throw UsageError(std::string("it is ") + kNames[static_cast<int>(found)] + ", but was " +
                     kNames[static_cast<int>(kind_)] + " before");
  }
}

SchemaInference::Kind SchemaInference::kind_of(const DataType& type) {
  switch (type.kind()) {
    case TypeKind::null:
      return Kind::null;
    case TypeKind::boolean:
      return Kind::boolean;
    case TypeKind::int64:
      return Kind::int64;
    case TypeKind::uint64:
      return Kind::uint64;
    case TypeKind::float64:
      return Kind::float64;
    case TypeKind::utf8:
      return Kind::text;
    case TypeKind::binary:
      return Kind::bytes;
    default:
      return type.is_list() ? Kind::list : Kind::struct_;
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
  widen(kind_of(value));
  if (kind_ == Kind::list) {
    auto& elements = child("item");
    for (const auto& element : value.list()) elements.add(element);
  }
  if (kind_ != Kind::struct_) return;
  for (const auto& [name, field] : value.fields()) add_field(name, field);
}

void SchemaInference::add(const DataType& type) {
  widen(type.kind() == TypeKind::null ? kind_ : kind_of(type));
  if (type.is_list()) child("item").add(type.element());
  if (type.kind() != TypeKind::struct_) return;
  for (const auto& field : type.fields()) add_field(field.name, field.type);
}

DataType SchemaInference::type() const {
  switch (kind_) {
    case Kind::null:
      return DataType(TypeKind::null);
    case Kind::boolean:
      return DataType(TypeKind::boolean);
    case Kind::int64:
      return DataType(TypeKind::int64);
    case Kind::uint64:
      return DataType(TypeKind::uint64);
    case Kind::float64:
      return DataType(TypeKind::float64);
    case Kind::text:
      return DataType(TypeKind::utf8);
    case Kind::bytes:
      return DataType(TypeKind::binary);
    case Kind::list:
      return DataType::list(children_.front().second.type());
    case Kind::struct_:
      break;
  }
  std::vector<Field> fields;
  for (const auto& [name, child] : children_) fields.push_back({name, child.type()});
  return DataType::struct_(std::move(fields));
}

}  // namespace lockstep::table
