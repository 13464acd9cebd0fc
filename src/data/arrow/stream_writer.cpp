#include "stream_writer.hpp"

#include <algorithm>
#include <array>

#include "flat_types.hpp"
#include "flat_writer.hpp"
#include "schema_writer.hpp"

namespace lockstep::arrow_file {
namespace {

constexpr std::size_t kAlignment = 8;

std::size_t padded(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

/// What a record batch consists of, in the format's order: a column before its children.
struct Parts {
  std::vector<std::int64_t> nodes;
  std::vector<std::int64_t> places;
  std::vector<Buffer> buffers;
  std::size_t bytes = 0;

  void add(const Buffer& buffer) {
    places.insert(places.end(), {static_cast<std::int64_t>(bytes), static_cast<std::int64_t>(buffer.bytes)});
    bytes += padded(buffer.bytes);
    buffers.push_back(buffer);
  }

  void add(const ArrayData& array) {
    nodes.insert(nodes.end(), {array.length, array.null_count});
    const auto& type = array.type;
    if (type.kind() == TypeKind::null) return;
    add(array.validity);
    if (type.is_text_or_binary() || (type.is_list() && type.width() == 0)) add(array.offsets);
    if (!type.is_list() && type.kind() != TypeKind::structure) add(array.values);
    for (const auto& child : array.children) add(*child);
  }
};

std::string batch_message(const Parts& parts, std::int64_t rows) {
  FlatWriter writer;
  const auto message = writer.table(
      {{3, 8, parts.bytes}, {0, 2, flat::kVersion5}, {1, 1, flat::kRecordBatch}, FlatWriter::reference(2)});
  const auto batch = writer.table(
      {{0, 8, static_cast<std::uint64_t>(rows)}, FlatWriter::reference(1), FlatWriter::reference(2)});
  writer.link(message.fields[3], batch.position);
  writer.link(batch.fields[1], writer.structures(parts.nodes, 2));
  writer.link(batch.fields[2], writer.structures(parts.places, 2));
  return writer.finish(message.position);
}

}  // namespace

StreamWriter::StreamWriter(Sink sink, const std::vector<Field>& fields,
                           const std::map<std::string, std::string>& metadata)
    : sink_(std::move(sink)) {
  message(schema_message(fields, metadata));
}

void StreamWriter::message(const std::string& description) {
  const std::array<std::uint32_t, 2> head = {0xFFFFFFFF, static_cast<std::uint32_t>(description.size())};
  sink_(head.data(), sizeof head);
  sink_(description.data(), description.size());
}

void StreamWriter::write(std::span<const ArrayPointer> columns, std::int64_t rows) {
  Parts parts;
  for (const auto& column : columns) parts.add(*column);
  message(batch_message(parts, rows));
  constexpr std::array<char, kAlignment> kZeros{};
  for (const auto& buffer : parts.buffers) {
    if (buffer.bytes > 0) sink_(buffer.data, buffer.bytes);
    sink_(kZeros.data(), padded(buffer.bytes) - buffer.bytes);
  }
}

void StreamWriter::finish() {
  const std::array<std::uint32_t, 2> end = {0xFFFFFFFF, 0};
  sink_(end.data(), sizeof end);
}

}  // namespace lockstep::arrow_file
