#include "lockstep/datasets/data_type.hpp"

#include <arrow/extension_type.h>
#include <arrow/type.h>
#include <arrow/util/key_value_metadata.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <utility>

#include "core/text.hpp"
#include "datasets/arrow/known_types.hpp"
#include "datasets/table/check_name.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

using arrow_file::kKnown;
using arrow_file::Known;

const Known& known(TypeKind kind) noexcept { return kKnown[static_cast<std::size_t>(kind)]; }

bool has_unit(TypeKind kind) {
  return kind == TypeKind::time32 || kind == TypeKind::time64 || kind == TypeKind::timestamp ||
         kind == TypeKind::duration;
}

constexpr std::array<const char*, 4> kUnits = {"s", "ms", "us", "ns"};

[[noreturn]] void refuse(std::string_view name) {
  throw UsageError(
      "the type '" + std::string(name) +
      "' is not supported. Columns are bool, (u)int8 to (u)int64, float16 to float64, string, "
      "binary, large_string, large_binary, dates, times, time stamps, durations, decimals, and lists "
      "and structures of these; convert the column before it is written.");
}

/// Parses the part in brackets of, for example, "timestamp[us, tz=UTC]".
DataType parsed_temporal(TypeKind kind, std::string_view inside, std::string_view name) {
  const auto comma = inside.find(',');
  const std::string unit(trim_blanks(inside.substr(0, comma)));
  if (comma == std::string_view::npos) return DataType::temporal(kind, unit);
  const auto zone = trim_blanks(inside.substr(comma + 1));
  if (!zone.starts_with("tz=")) refuse(name);
  return DataType::temporal(kind, unit, std::string(zone.substr(3)));
}

/// Parses, for example, "decimal128(10, 2)"; null otherwise.
std::optional<DataType> parsed_decimal(const std::string& name) {
  int bits = 0;
  int precision = 0;
  int scale = 0;
  char end = 0;
  if (std::sscanf(name.c_str(), "decimal%d(%d,%d%c", &bits, &precision, &scale, &end) != 4 || end != ')')
    return std::nullopt;
  if (bits != 128 && bits != 256) return std::nullopt;
  return DataType::decimal(bits / 8, precision, scale);
}

std::string fields_text(const std::vector<Field>& fields) {
  std::string text;
  for (const auto& field : fields) text += (text.empty() ? "" : ", ") + field.name + ": " + field.type.text();
  return text;
}

/// The unit's index in kUnits; null if the type does not have that unit.
std::optional<arrow::TimeUnit::type> unit_of(TypeKind kind, const std::string& unit) {
  const auto position = std::find(kUnits.begin(), kUnits.end(), unit) - kUnits.begin();
  const bool coarse = position < 2;
  if (position == 4 || (kind == TypeKind::time32 && !coarse) || (kind == TypeKind::time64 && coarse))
    return std::nullopt;
  return static_cast<arrow::TimeUnit::type>(position);
}

template <typename Type>
const Type& as(const std::shared_ptr<arrow::DataType>& type) {
  return static_cast<const Type&>(*type);
}

std::shared_ptr<arrow::Field> item(const DataType& element) { return arrow::field("item", element.arrow()); }

std::shared_ptr<const std::vector<Field>> only(DataType element) {
  return std::make_shared<const std::vector<Field>>(1, Field{"item", std::move(element)});
}

}  // namespace

DataType::DataType() : arrow_(arrow::null()) {}

DataType::DataType(TypeKind kind) : kind_(kind) {
  if (known(kind).make == nullptr) {
    throw UsageError("the type '" + std::string(known(kind).name) +
                     "' has parameters: make it with the function of DataType that takes them.");
  }
  arrow_ = known(kind).make();
}

DataType::DataType(TypeKind kind, std::shared_ptr<arrow::DataType> arrow,
                   std::shared_ptr<const std::vector<Field>> fields)
    : kind_(kind), arrow_(std::move(arrow)), fields_(std::move(fields)) {
  if (kind == TypeKind::fixed_size_binary) width_ = as<arrow::FixedSizeBinaryType>(arrow_).byte_width();
  if (kind == TypeKind::fixed_size_list) width_ = as<arrow::FixedSizeListType>(arrow_).list_size();
}

DataType DataType::list(DataType element, bool large) {
  auto type = large ? arrow::large_list(item(element)) : arrow::list(item(element));
  return {large ? TypeKind::large_list : TypeKind::list, std::move(type), only(std::move(element))};
}

DataType DataType::fixed_size_list(DataType element, std::int32_t length) {
  if (length < 1)
    throw UsageError(fmt::format("a list of fixed size needs a length of 1 or more, got {}.", length));
  auto type = arrow::fixed_size_list(item(element), length);
  return {TypeKind::fixed_size_list, std::move(type), only(std::move(element))};
}

DataType DataType::fixed_size_binary(std::int32_t bytes) {
  if (bytes < 1) throw UsageError(fmt::format("binary of fixed size needs 1 byte or more, got {}.", bytes));
  return {TypeKind::fixed_size_binary, arrow::fixed_size_binary(bytes)};
}

DataType DataType::struct_(std::vector<Field> fields) {
  arrow::FieldVector inner;
  for (const auto& field : fields) {
    table::check_name(field.name, "the field");
    inner.push_back(arrow::field(field.name, field.type.arrow()));
  }
  return {TypeKind::struct_, arrow::struct_(inner),
          std::make_shared<const std::vector<Field>>(std::move(fields))};
}

DataType DataType::temporal(TypeKind kind, std::string unit, std::string zone) {
  const auto found = unit_of(kind, unit);
  table::check_name(zone, "the time zone");
  const bool zone_fits = zone.empty() || kind == TypeKind::timestamp;
  if (!has_unit(kind) || !found || !zone_fits) {
    throw UsageError("a time of type '" + std::string(known(kind).name) + "' cannot have the unit '" + unit +
                     "' and the zone '" + zone + "'.");
  }
  if (kind == TypeKind::time32) return {kind, arrow::time32(*found)};
  if (kind == TypeKind::time64) return {kind, arrow::time64(*found)};
  return {kind, kind == TypeKind::duration ? arrow::duration(*found) : arrow::timestamp(*found, zone)};
}

DataType DataType::decimal(int bytes, std::int32_t precision, std::int32_t scale) {
  const std::int32_t most = bytes == 16 ? 38 : 76;
  if ((bytes != 16 && bytes != 32) || precision < 1 || precision > most) {
    throw UsageError(fmt::format(
        "a decimal has 16 bytes for 1 to 38 digits or 32 bytes for up to 76, but got {} bytes and {} "
        "digits.",
        bytes, precision));
  }
  if (bytes == 16) return {TypeKind::decimal128, arrow::decimal128(precision, scale)};
  return {TypeKind::decimal256, arrow::decimal256(precision, scale)};
}

DataType DataType::named(std::string_view name) {
  const auto bracket = name.find('[');
  const auto stem = name.substr(0, bracket);
  for (const auto& one : kKnown) {
    if (one.name != stem) continue;
    if (has_unit(one.kind) && bracket != std::string_view::npos && name.back() == ']') {
      return parsed_temporal(one.kind, name.substr(bracket + 1, name.size() - bracket - 2), name);
    }
    if (bracket == std::string_view::npos && one.make != nullptr) return DataType(one.kind);
  }
  // Older aliases.
  if (name == "float" || name == "halffloat")
    return DataType(name == "float" ? TypeKind::float32 : TypeKind::float16);
  if (name == "double") return DataType(TypeKind::float64);
  if (name == "boolean") return DataType(TypeKind::boolean);
  if (name == "utf8") return DataType(TypeKind::utf8);
  // Views become plain columns when they are read.
  if (name == "string_view") return DataType(TypeKind::utf8);
  if (name == "binary_view") return DataType(TypeKind::binary);
  if (const auto decimal = parsed_decimal(std::string(name))) return *decimal;
  refuse(name);
}

const std::vector<Field>& DataType::fields() const noexcept {
  static const std::vector<Field> none;
  return fields_ ? *fields_ : none;
}

const DataType& DataType::element() const {
  if (!is_list()) throw UsageError("the type " + text() + " is not a list: it has no elements.");
  return fields_->front().type;
}

bool DataType::is_list() const noexcept {
  return kind_ == TypeKind::list || kind_ == TypeKind::large_list || kind_ == TypeKind::fixed_size_list;
}

bool DataType::is_text_or_binary() const noexcept {
  return kind_ >= TypeKind::utf8 && kind_ <= TypeKind::large_binary;
}

bool DataType::is_integer() const noexcept { return kind_ >= TypeKind::int8 && kind_ <= TypeKind::uint64; }

bool DataType::is_floating() const noexcept {
  return kind_ >= TypeKind::float16 && kind_ <= TypeKind::float64;
}

bool DataType::is_temporal() const noexcept {
  return kind_ >= TypeKind::date32 && kind_ <= TypeKind::duration;
}

bool DataType::is_decimal() const noexcept { return kind_ >= TypeKind::decimal128; }

std::size_t DataType::value_bytes() const noexcept {
  return static_cast<std::size_t>(std::max(arrow_->byte_width(), 0));
}

std::string DataType::unit() const {
  if (!has_unit(kind_)) return {};
  const auto unit = kind_ == TypeKind::timestamp  ? as<arrow::TimestampType>(arrow_).unit()
                    : kind_ == TypeKind::duration ? as<arrow::DurationType>(arrow_).unit()
                                                  : as<arrow::TimeType>(arrow_).unit();
  return kUnits[static_cast<std::size_t>(unit)];
}

std::string DataType::zone() const {
  return kind_ == TypeKind::timestamp ? as<arrow::TimestampType>(arrow_).timezone() : std::string();
}

std::int32_t DataType::precision() const {
  return is_decimal() ? as<arrow::DecimalType>(arrow_).precision() : 0;
}

std::int32_t DataType::scale() const { return is_decimal() ? as<arrow::DecimalType>(arrow_).scale() : 0; }

std::string DataType::text() const {
  std::string name(known(kind_).name);
  if (kind_ == TypeKind::struct_) return name + "<" + fields_text(fields()) + ">";
  if (is_list())
    return name + "<" + element().text() + ">" + (width_ == 0 ? "" : "[" + std::to_string(width_) + "]");
  // Hugging Face writes units, time zones, widths and digits the same way.
  return known(kind_).make == nullptr ? arrow_->ToString() : name;
}

bool operator==(const DataType& a, const DataType& b) { return a.arrow_->Equals(*b.arrow_); }

}  // namespace lockstep
