#include "stream_reader.hpp"

#include <cstring>
#include <optional>
#include <string_view>

#include "data/table/take.hpp"
#include "flat_types.hpp"
#include "lockstep/data/column.hpp"

namespace lockstep::arrow_file {
namespace {

constexpr std::string_view kMagic = "ARROW1";
constexpr std::uint32_t kContinuation = 0xFFFFFFFF;
/// Of a message's description: a schema of 100,000 columns takes some 10 MB.
constexpr std::uint32_t kMostMetadata = 1U << 28;

std::string_view text_of(const Buffer& bytes) {
  return {reinterpret_cast<const char*>(bytes.data), bytes.bytes};
}

std::uint32_t word_at(const Buffer& bytes, std::size_t position) {
  std::uint32_t word;
  std::memcpy(&word, bytes.data + position, sizeof word);
  return word;
}

struct Message {
  std::uint8_t kind;
  FlatTable header;
  Buffer body;
};

class Stream {
 public:
  Stream(const Buffer& bytes, std::size_t begin, const std::string& name, bool trusted)
      : bytes_(bytes), position_(begin), place_(name, "the schema"), trusted_(trusted) {}

  FileTable read() {
    const auto first = next();
    if (!first || first->kind != flat::kSchema) place_.fail("the first message is no schema");
    table_.schema = read_schema(first->header, place_);
    table_.columns.resize(table_.schema.fields.size());
    for (place_ = at_batch(); auto message = next(); place_ = at_batch()) take(*message);
    return std::move(table_);
  }

 private:
  Place at_batch() const { return place_.at("record batch " + std::to_string(batches_)); }

  [[noreturn]] void truncated(const std::string& what) const {
    place_.fail(what + " at byte " + std::to_string(position_) + ", but the file ends at byte " +
                std::to_string(bytes_.bytes) + ": it may be truncated");
  }

  Buffer take_bytes(std::uint64_t count, const char* what) {
    if (count > bytes_.bytes - position_)
      truncated(std::string(what) + " of " + std::to_string(count) + " bytes begins");
    const Buffer piece{bytes_.data + position_, static_cast<std::size_t>(count), bytes_.owner};
    position_ += static_cast<std::size_t>(count);
    return piece;
  }

  std::uint32_t take_word() { return word_at(take_bytes(4, "a length"), 0); }

  /// The next message; nothing at the end, be it marked or that of the bytes.
  std::optional<Message> next() {
    if (position_ == bytes_.bytes) return std::nullopt;
    auto length = take_word();
    // Before Arrow 0.15 there was no mark before the length.
    if (length == kContinuation) length = take_word();
    if (length == 0) return std::nullopt;
    if (length > kMostMetadata) {
      place_.fail("a message at byte " + std::to_string(position_) + " claims a description of " +
                  std::to_string(length) + " bytes");
    }
    return message(take_bytes(length, "a message's description"));
  }

  Message message(const Buffer& description) {
    const auto table = FlatTable::root({description.data, description.bytes}, place_);
    const auto version = table.number<std::int16_t>(0, 0);
    if (version != flat::kVersion4 && version != flat::kVersion5) {
      place_.fail("its metadata has version " + std::to_string(version + 1) + "; versions 4 and 5 are known");
    }
    const auto header = table.table(2);
    const auto body = table.number<std::int64_t>(3, 0);
    if (!header || body < 0) place_.fail("a message without content");
    return {table.number<std::uint8_t>(1, 0), *header,
            take_bytes(static_cast<std::uint64_t>(body), "a message's body")};
  }

  void take(const Message& message) {
    if (message.kind == flat::kRecordBatch) return take_batch(message);
    if (message.kind == flat::kDictionaryBatch) return take_dictionary(message);
    place_.fail("a message of the unexpected kind " + std::to_string(message.kind));
  }

  void take_batch(const Message& message) {
    const auto columns =
        read_batch({message.header, message.body}, table_.schema.fields, dictionaries_, trusted_, place_);
    for (std::size_t column = 0; column < columns.size(); ++column)
      table_.columns[column].push_back(columns[column]);
    table_.rows += columns.empty() ? 0 : columns.front()->length;
    ++batches_;
  }

  void take_dictionary(const Message& message) {
    const auto id = message.header.number<std::int64_t>(0, 0);
    const auto place = place_.within("dictionary " + std::to_string(id));
    const auto* field = find_dictionary(table_.schema.fields, id);
    const auto data = message.header.table(1);
    if (field == nullptr || !data) place.fail("no column uses it, or it is empty");
    FileField values = *field;
    values.dictionary.reset();
    auto fresh = read_batch({*data, message.body}, {values}, dictionaries_, trusted_, place).front();
    auto& known = dictionaries_[id];
    const bool delta = message.header.flag(2);
    if (delta && !known) place.fail("an addition to a dictionary that there is not");
    known = delta ? joined(known, fresh) : fresh;
  }

  static ArrayPointer joined(const ArrayPointer& first, const ArrayPointer& second) {
    const table::Range ranges[] = {{first.get(), 0, first->length}, {second.get(), 0, second->length}};
    return table::copy_ranges(first->type, ranges);
  }

  Buffer bytes_;
  std::size_t position_;
  Place place_;
  bool trusted_;
  FileTable table_;
  Dictionaries dictionaries_;
  std::int64_t batches_ = 0;
};

bool is_file_format(const Buffer& bytes) { return text_of(bytes).starts_with(kMagic); }

/// The footer repeats what the stream before it says; its end shows that the file is whole.
void check_end(const Buffer& bytes, const std::string& name) {
  const Place place(name, "the end of the file");
  if (!text_of(bytes).ends_with(kMagic) || bytes.bytes < 2 * kMagic.size() + 6) {
    place.fail("it does not end with the mark '" + std::string(kMagic) + "': it may be truncated");
  }
  const auto end = bytes.bytes - kMagic.size() - 4;
  const auto length = word_at(bytes, end);
  if (length > end - 8) place.fail("it claims a footer of " + std::to_string(length) + " bytes");
}

}  // namespace

bool is_arrow(const Buffer& bytes) noexcept {
  if (is_file_format(bytes)) return true;
  return bytes.bytes >= 8 && word_at(bytes, 0) == kContinuation;
}

FileTable read_arrow(const Buffer& bytes, const std::string& name, bool trusted) {
  if (!is_file_format(bytes)) return Stream(bytes, 0, name, trusted).read();
  check_end(bytes, name);
  Buffer stream = bytes;
  stream.bytes -= kMagic.size() + 4;
  return Stream(stream, 8, name, trusted).read();
}

}  // namespace lockstep::arrow_file
