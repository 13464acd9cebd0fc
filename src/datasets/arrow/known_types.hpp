#pragma once

#include <arrow/type.h>

#include <array>
#include <memory>
#include <string_view>
#include <utility>

#include "lockstep/datasets/data_type.hpp"

namespace lockstep {

/// Creates DataTypes from Arrow's types, which have all parameters.
struct ArrowTypes {
  static DataType make(TypeKind kind, std::shared_ptr<arrow::DataType> type) {
    return {kind, std::move(type)};
  }
};

namespace arrow_file {

/// A kind of our types, and what it is in Arrow.
struct Known {
  TypeKind kind;
  std::string_view name;
  arrow::Type::type id;
  /// Null for types with parameters.
  const std::shared_ptr<arrow::DataType>& (*make)();
};

/// With Hugging Face's names.
inline constexpr std::array kKnown = {
    Known{TypeKind::null, "null", arrow::Type::NA, arrow::null},
    Known{TypeKind::boolean, "bool", arrow::Type::BOOL, arrow::boolean},
    Known{TypeKind::int8, "int8", arrow::Type::INT8, arrow::int8},
    Known{TypeKind::int16, "int16", arrow::Type::INT16, arrow::int16},
    Known{TypeKind::int32, "int32", arrow::Type::INT32, arrow::int32},
    Known{TypeKind::int64, "int64", arrow::Type::INT64, arrow::int64},
    Known{TypeKind::uint8, "uint8", arrow::Type::UINT8, arrow::uint8},
    Known{TypeKind::uint16, "uint16", arrow::Type::UINT16, arrow::uint16},
    Known{TypeKind::uint32, "uint32", arrow::Type::UINT32, arrow::uint32},
    Known{TypeKind::uint64, "uint64", arrow::Type::UINT64, arrow::uint64},
    Known{TypeKind::float16, "float16", arrow::Type::HALF_FLOAT, arrow::float16},
    Known{TypeKind::float32, "float32", arrow::Type::FLOAT, arrow::float32},
    Known{TypeKind::float64, "float64", arrow::Type::DOUBLE, arrow::float64},
    Known{TypeKind::utf8, "string", arrow::Type::STRING, arrow::utf8},
    Known{TypeKind::large_utf8, "large_string", arrow::Type::LARGE_STRING, arrow::large_utf8},
    Known{TypeKind::binary, "binary", arrow::Type::BINARY, arrow::binary},
    Known{TypeKind::large_binary, "large_binary", arrow::Type::LARGE_BINARY, arrow::large_binary},
    Known{TypeKind::fixed_size_binary, "fixed_size_binary", arrow::Type::FIXED_SIZE_BINARY, nullptr},
    Known{TypeKind::list, "list", arrow::Type::LIST, nullptr},
    Known{TypeKind::large_list, "large_list", arrow::Type::LARGE_LIST, nullptr},
    Known{TypeKind::fixed_size_list, "fixed_size_list", arrow::Type::FIXED_SIZE_LIST, nullptr},
    Known{TypeKind::struct_, "struct", arrow::Type::STRUCT, nullptr},
    Known{TypeKind::date32, "date32", arrow::Type::DATE32, arrow::date32},
    Known{TypeKind::date64, "date64", arrow::Type::DATE64, arrow::date64},
    Known{TypeKind::time32, "time32", arrow::Type::TIME32, nullptr},
    Known{TypeKind::time64, "time64", arrow::Type::TIME64, nullptr},
    Known{TypeKind::timestamp, "timestamp", arrow::Type::TIMESTAMP, nullptr},
    Known{TypeKind::duration, "duration", arrow::Type::DURATION, nullptr},
    Known{TypeKind::decimal128, "decimal128", arrow::Type::DECIMAL128, nullptr},
    Known{TypeKind::decimal256, "decimal256", arrow::Type::DECIMAL256, nullptr},
};

constexpr bool in_order() {
  for (std::size_t index = 0; index < kKnown.size(); ++index) {
    if (static_cast<std::size_t>(kKnown[index].kind) != index) return false;
  }
  return true;
}
static_assert(in_order(), "the kinds' numbers are places in the list");

}  // namespace arrow_file
}  // namespace lockstep
