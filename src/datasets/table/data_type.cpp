#include "lockstep/datasets/data_type.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

struct Known {
  TypeKind kind;
  std::string_view name;
  std::size_t bytes;
};

/// By Hugging Face's names; bytes is 0 where values have no fixed number of whole bytes.
constexpr std::array kKnown = {
    Known{TypeKind::null, "null", 0},
    Known{TypeKind::boolean, "bool", 0},
    Known{TypeKind::int8, "int8", 1},
    Known{TypeKind::int16, "int16", 2},
    Known{TypeKind::int32, "int32", 4},
    Known{TypeKind::int64, "int64", 8},
    Known{TypeKind::uint8, "uint8", 1},
    Known{TypeKind::uint16, "uint16", 2},
    Known{TypeKind::uint32, "uint32", 4},
    Known{TypeKind::uint64, "uint64", 8},
    Known{TypeKind::float16, "float16", 2},
    Known{TypeKind::float32, "float32", 4},
    Known{TypeKind::float64, "float64", 8},
    Known{TypeKind::utf8, "string", 0},
    Known{TypeKind::large_utf8, "large_string", 0},
    Known{TypeKind::binary, "binary", 0},
    Known{TypeKind::large_binary, "large_binary", 0},
    Known{TypeKind::fixed_size_binary, "fixed_size_binary", 0},
    Known{TypeKind::list, "list", 0},
    Known{TypeKind::large_list, "large_list", 0},
    Known{TypeKind::fixed_size_list, "fixed_size_list", 0},
    Known{TypeKind::struct_, "struct", 0},
    Known{TypeKind::date32, "date32", 4},
    Known{TypeKind::date64, "date64", 8},
    Known{TypeKind::time32, "time32", 4},
    Known{TypeKind::time64, "time64", 8},
    Known{TypeKind::timestamp, "timestamp", 8},
    Known{TypeKind::duration, "duration", 8},
    Known{TypeKind::decimal128, "decimal128", 16},
    Known{TypeKind::decimal256, "decimal256", 32},
};

constexpr bool in_order() {
  for (std::size_t place = 0; place < kKnown.size(); ++place) {
    if (static_cast<std::size_t>(kKnown[place].kind) != place) return false;
  }
  return true;
}
static_assert(in_order(), "the kinds' numbers are places in the list");

const Known& known(TypeKind kind) noexcept { return kKnown[static_cast<std::size_t>(kind)]; }

bool is_temporal(TypeKind kind) {
  return kind == TypeKind::time32 || kind == TypeKind::time64 || kind == TypeKind::timestamp ||
         kind == TypeKind::duration;
}

bool has_parameters(TypeKind kind) {
  return is_temporal(kind) || kind >= TypeKind::decimal128 || kind == TypeKind::fixed_size_binary ||
         kind == TypeKind::list || kind == TypeKind::large_list || kind == TypeKind::fixed_size_list ||
         kind == TypeKind::struct_;
}

[[noreturn]] void refuse(std::string_view name) {
  throw UsageError(
      "the type '" + std::string(name) +
      "' is not supported. Columns are bool, (u)int8 to (u)int64, float16 to float64, string, "
      "binary, large_string, large_binary, dates, times, time stamps, durations, decimals, and lists "
      "and structures of these; convert the column before it is written.");
}

std::string trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(' ') - begin + 1));
}

/// "timestamp[us, tz=UTC]": the part in brackets.
DataType parsed_temporal(TypeKind kind, std::string_view inside, std::string_view name) {
  const auto comma = inside.find(',');
  const auto unit = trimmed(inside.substr(0, comma));
  if (comma == std::string_view::npos) return DataType::temporal(kind, unit);
  const auto zone = trimmed(inside.substr(comma + 1));
  if (!zone.starts_with("tz=")) refuse(name);
  return DataType::temporal(kind, unit, zone.substr(3));
}

/// "decimal128(10, 2)", or nothing.
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

bool unit_fits(TypeKind kind, const std::string& unit) {
  const bool coarse = unit == "s" || unit == "ms";
  const bool fine = unit == "us" || unit == "ns";
  if (kind == TypeKind::time32) return coarse;
  if (kind == TypeKind::time64) return fine;
  return coarse || fine;
}

}  // namespace

DataType::DataType(TypeKind kind) : kind_(kind) {
  if (has_parameters(kind)) {
    throw UsageError("the type '" + std::string(known(kind).name) +
                     "' has parameters: make it with the function of DataType that takes them.");
  }
}

DataType DataType::list(DataType element, bool large) {
  DataType type;
  type.kind_ = large ? TypeKind::large_list : TypeKind::list;
  type.fields_ = std::make_shared<const std::vector<Field>>(1, Field{"item", std::move(element)});
  return type;
}

DataType DataType::fixed_size_list(DataType element, std::int32_t length) {
  if (length < 1)
    throw UsageError("a list of fixed size needs a length of 1 or more, but came " + std::to_string(length) +
                     ".");
  DataType type = list(std::move(element));
  type.kind_ = TypeKind::fixed_size_list;
  type.width_ = length;
  return type;
}

DataType DataType::fixed_size_binary(std::int32_t bytes) {
  if (bytes < 1)
    throw UsageError("binary of fixed size needs 1 byte or more, but came " + std::to_string(bytes) + ".");
  DataType type;
  type.kind_ = TypeKind::fixed_size_binary;
  type.width_ = bytes;
  return type;
}

DataType DataType::struct_(std::vector<Field> fields) {
  DataType type;
  type.kind_ = TypeKind::struct_;
  type.fields_ = std::make_shared<const std::vector<Field>>(std::move(fields));
  return type;
}

DataType DataType::temporal(TypeKind kind, std::string unit, std::string zone) {
  const bool zone_fits = zone.empty() || kind == TypeKind::timestamp;
  if (!is_temporal(kind) || !unit_fits(kind, unit) || !zone_fits) {
    throw UsageError("a time of type '" + std::string(known(kind).name) + "' cannot have the unit '" + unit +
                     "' and the zone '" + zone + "'.");
  }
  DataType type;
  type.kind_ = kind;
  type.unit_ = std::move(unit);
  type.zone_ = std::move(zone);
  return type;
}

DataType DataType::decimal(int bytes, std::int32_t precision, std::int32_t scale) {
  const std::int32_t most = bytes == 16 ? 38 : 76;
  if ((bytes != 16 && bytes != 32) || precision < 1 || precision > most) {
    throw UsageError(
        fmt::format("a decimal has 16 bytes for 1 to 38 digits or 32 bytes for up to 76, but {} bytes and {} "
                    "digits came.",
                    bytes, precision));
  }
  DataType type;
  type.kind_ = bytes == 16 ? TypeKind::decimal128 : TypeKind::decimal256;
  type.precision_ = precision;
  type.scale_ = scale;
  return type;
}

DataType DataType::named(std::string_view name) {
  const auto bracket = name.find('[');
  const auto stem = name.substr(0, bracket);
  for (const auto& one : kKnown) {
    if (one.name != stem) continue;
    if (is_temporal(one.kind) && bracket != std::string_view::npos && name.back() == ']') {
      return parsed_temporal(one.kind, name.substr(bracket + 1, name.size() - bracket - 2), name);
    }
    if (bracket == std::string_view::npos && !has_parameters(one.kind)) return DataType(one.kind);
  }
  // Older names for the same.
  if (name == "float" || name == "halffloat")
    return DataType(name == "float" ? TypeKind::float32 : TypeKind::float16);
  if (name == "double") return DataType(TypeKind::float64);
  if (name == "boolean") return DataType(TypeKind::boolean);
  if (name == "utf8") return DataType(TypeKind::utf8);
  if (const auto decimal = parsed_decimal(std::string(name))) return *decimal;
  refuse(name);
}

const std::vector<Field>& DataType::fields() const noexcept {
  static const std::vector<Field> none;
  return fields_ ? *fields_ : none;
}

const DataType& DataType::element() const {
  if (!is_list()) throw UsageError("the type " + text() + " is no list: it has no elements.");
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

bool DataType::is_decimal() const noexcept { return precision_ > 0; }

std::size_t DataType::value_bytes() const noexcept {
  if (kind_ == TypeKind::fixed_size_binary) return static_cast<std::size_t>(width_);
  return known(kind_).bytes;
}

std::string DataType::text() const {
  std::string name(known(kind_).name);
  if (is_temporal(kind_)) return name + "[" + unit_ + (zone_.empty() ? "" : ", tz=" + zone_) + "]";
  if (is_decimal()) return fmt::format("{}({}, {})", name, precision_, scale_);
  if (kind_ == TypeKind::fixed_size_binary) return name + "[" + std::to_string(width_) + "]";
  if (kind_ == TypeKind::struct_) return name + "<" + fields_text(fields()) + ">";
  if (!is_list()) return name;
  return name + "<" + element().text() + ">" + (width_ == 0 ? "" : "[" + std::to_string(width_) + "]");
}

bool operator==(const DataType& a, const DataType& b) {
  if (a.kind_ != b.kind_ || a.width_ != b.width_ || a.unit_ != b.unit_ || a.zone_ != b.zone_) return false;
  if (a.precision_ != b.precision_ || a.scale_ != b.scale_) return false;
  // What a list's child is called ("item", "element") says nothing.
  if (a.is_list()) return a.element() == b.element();
  const auto same = [](const Field& one, const Field& other) {
    return one.name == other.name && one.type == other.type;
  };
  return std::equal(a.fields().begin(), a.fields().end(), b.fields().begin(), b.fields().end(), same);
}

}  // namespace lockstep
