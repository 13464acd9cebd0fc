#include "flat_reader.hpp"

#include <bit>

#include "lockstep/core/error.hpp"

namespace lockstep::arrow_file {

static_assert(std::endian::native == std::endian::little, "the format's numbers are read as they lie");

void Place::fail(const std::string& what) const {
  throw DataError("'" + file_ + "' is no valid Arrow file: " + where_ + ": " + what + ".");
}

FlatTable::FlatTable(std::span<const std::uint8_t> bytes, std::size_t position, const Place& place)
    : bytes_(bytes), position_(position), place_(&place) {
  const auto back = static_cast<std::int64_t>(read<std::int32_t>(position));
  const auto slots = static_cast<std::int64_t>(position) - back;
  if (slots < 0 || slots > static_cast<std::int64_t>(bytes.size()))
    place.fail("a table's description lies outside");
  slots_ = static_cast<std::size_t>(slots);
  const auto slots_bytes = std::size_t{read<std::uint16_t>(slots_)};
  table_bytes_ = std::size_t{read<std::uint16_t>(slots_ + 2)};
  if (slots_bytes < 4 || slots_bytes % 2 != 0) place.fail("a table's description is malformed");
  require(slots_, slots_bytes);
  require(position_, table_bytes_);
  slot_count_ = (slots_bytes - 4) / 2;
}

FlatTable FlatTable::root(std::span<const std::uint8_t> bytes, const Place& place) {
  if (bytes.size() < 8) place.fail("its description has only " + std::to_string(bytes.size()) + " bytes");
  std::uint32_t position = 0;
  std::memcpy(&position, bytes.data(), sizeof position);
  if (position > bytes.size() - 4) place.fail("its description begins outside");
  return {bytes, position, place};
}

void FlatTable::require(std::size_t position, std::size_t count) const {
  if (position <= bytes_.size() && count <= bytes_.size() - position) return;
  place_->fail("its description leads to byte " + std::to_string(position + count) + " of " +
               std::to_string(bytes_.size()));
}

std::size_t FlatTable::find(int slot, std::size_t count) const {
  if (static_cast<std::size_t>(slot) >= slot_count_) return 0;
  const auto offset = std::size_t{read<std::uint16_t>(slots_ + 4 + 2 * static_cast<std::size_t>(slot))};
  if (offset == 0) return 0;
  if (offset + count > table_bytes_) place_->fail("a field lies outside of its table");
  return position_ + offset;
}

std::size_t FlatTable::follow(std::size_t position) const {
  const auto target = position + read<std::uint32_t>(position);
  require(target, 4);
  return target;
}

std::optional<FlatTable> FlatTable::table(int slot) const {
  const auto field = find(slot, 4);
  if (field == 0) return std::nullopt;
  return FlatTable(bytes_, follow(field), *place_);
}

std::string_view FlatTable::text(int slot) const {
  const auto characters = vector(slot, 1);
  return {reinterpret_cast<const char*>(bytes_.data()) + characters.begin_, characters.count_};
}

FlatVector FlatTable::vector(int slot, std::size_t element) const {
  const auto field = find(slot, 4);
  if (field == 0) return {bytes_, 0, 0, element, *place_};
  const auto begin = follow(field);
  const auto count = std::size_t{read<std::uint32_t>(begin)};
  require(begin + 4, count * element);
  return {bytes_, begin + 4, count, element, *place_};
}

FlatVector FlatTable::tables(int slot) const { return vector(slot, 4); }

FlatTable FlatVector::table(std::size_t index) const {
  const auto position = begin_ + index * element_;
  const auto target = position + number<std::uint32_t>(index);
  if (target > bytes_.size() || bytes_.size() - target < 4) place_->fail("a table lies outside");
  return {bytes_, target, *place_};
}

}  // namespace lockstep::arrow_file
