#include "flat_writer.hpp"

#include <algorithm>
#include <cstring>

namespace lockstep::arrow_file {

void FlatWriter::align(std::size_t to, std::size_t behind) {
  while ((bytes_.size() + behind) % to != 0) bytes_ += '\0';
}

FlatWriter::Table FlatWriter::table(const std::vector<Slot>& slots) {
  int last = -1;
  for (const auto& slot : slots) last = std::max(last, slot.slot);
  std::vector<std::uint16_t> offsets(static_cast<std::size_t>(last + 1), 0);
  std::size_t size = 4;
  for (const auto& slot : slots) {
    size = (size + slot.bytes - 1) / slot.bytes * slot.bytes;
    offsets[static_cast<std::size_t>(slot.slot)] = static_cast<std::uint16_t>(size);
    size += slot.bytes;
  }
  const auto description = bytes_.size();
  add(static_cast<std::uint16_t>(4 + 2 * offsets.size()));
  add(static_cast<std::uint16_t>(size));
  for (const auto offset : offsets) add(offset);
  align(8);
  Table table{bytes_.size(), {}};
  bytes_.append(size, '\0');
  const auto back = static_cast<std::int32_t>(table.position - description);
  std::memcpy(bytes_.data() + table.position, &back, sizeof back);
  for (const auto& slot : slots) {
    table.fields.push_back(table.position + offsets[static_cast<std::size_t>(slot.slot)]);
    // Little-endian: the low bytes come first.
    std::memcpy(bytes_.data() + table.fields.back(), &slot.value, slot.bytes);
  }
  align(8);
  return table;
}

std::size_t FlatWriter::text(std::string_view text) {
  align(4);
  const auto position = bytes_.size();
  add(static_cast<std::uint32_t>(text.size()));
  bytes_.append(text);
  bytes_ += '\0';
  align(4);
  return position;
}

std::size_t FlatWriter::references(std::size_t count) {
  align(4);
  const auto position = bytes_.size();
  add(static_cast<std::uint32_t>(count));
  bytes_.append(4 * count, '\0');
  return position;
}

std::size_t FlatWriter::structures(const std::vector<std::int64_t>& numbers, std::size_t width) {
  align(8, 4);
  const auto position = bytes_.size();
  add(static_cast<std::uint32_t>(numbers.size() / width));
  for (const auto number : numbers) add(number);
  return position;
}

void FlatWriter::link(std::size_t place, std::size_t target) {
  const auto distance = static_cast<std::uint32_t>(target - place);
  std::memcpy(bytes_.data() + place, &distance, sizeof distance);
}

std::string FlatWriter::finish(std::size_t root) {
  link(0, root);
  align(8);
  return std::move(bytes_);
}

}  // namespace lockstep::arrow_file
