#include "datasets/stream/tar_reader.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <iostream>
#include <mutex>
#include <span>

#include "core/text.hpp"
#include "core/utf8_check.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::stream {

/// The header of POSIX tar (ustar).
struct TarReader::Header {
  std::array<char, 100> name;
  std::array<char, 24> mode_and_owner;
  std::array<char, 12> size;
  std::array<char, 12> time;
  std::array<char, 8> checksum;
  char type;
  std::array<char, 100> link;
  std::array<char, 6> magic;
  std::array<char, 82> version_to_device;
  std::array<char, 155> prefix;
  std::array<char, 12> rest;
};

namespace {

constexpr std::uint64_t kBlock = 512;
/// Maximum size of a long name, or of the records about one member.
constexpr std::uint64_t kMostText = std::uint64_t{1} << 20;
/// Bytes to read ahead: for small members, many headers and members at once; after a large one, only the next
/// headers, because what is read ahead is copied again.
constexpr std::size_t kAheadOfSmall = std::size_t{64} << 10;
constexpr std::size_t kAheadOfLarge = std::size_t{4} << 10;
constexpr std::size_t kLarge = std::size_t{16} << 10;
/// Memory allocated for a member before its bytes are read.
constexpr std::uint64_t kPiece = std::uint64_t{16} << 20;

std::uint64_t padding_of(std::uint64_t size) { return (kBlock - size % kBlock) % kBlock; }

template <std::size_t Size>
std::string_view read_field(const std::array<char, Size>& field) {
  return {field.data(), ::strnlen(field.data(), Size)};
}

/// Parses octal digits, surrounded by spaces.
std::optional<std::uint64_t> octal(std::string_view text) {
  const auto begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return 0;
  text = text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, 8);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// GNU tar writes sizes of 8 GiB and more in base 256, with the first bit set, which no digit has.
std::optional<std::uint64_t> number_of(const std::array<char, 12>& field) {
  if ((static_cast<unsigned char>(field[0]) & 0x80U) == 0) return octal(read_field(field));
  std::uint64_t number = static_cast<unsigned char>(field[0]) & 0x7FU;
  for (const char byte : std::span(field).subspan(1)) {
    if (number >> 55 != 0) return std::nullopt;
    number = number << 8 | static_cast<unsigned char>(byte);
  }
  return number;
}

/// The sum of the bytes as numbers of type `Byte`, with spaces in place of the checksum. Two plain loops,
/// which the compiler vectorizes: the sum is most of the cost of a header.
template <typename Byte>
std::int64_t checksum_of(std::span<const char, kBlock> block) {
  constexpr std::size_t kBegin = 148;
  constexpr std::size_t kSize = 8;
  const auto sum = [](std::span<const char> bytes) {
    std::int32_t total = 0;
    for (const char byte : bytes) total += static_cast<Byte>(byte);
    return total;
  };
  return sum(block) - sum(block.subspan(kBegin, kSize)) + std::int64_t{kSize} * ' ';
}

/// Accepts sums of signed characters too, which some programs have written.
bool is_whole(std::span<const char, kBlock> block, std::string_view checksum) {
  const auto claimed = octal(checksum);
  if (!claimed) return false;
  const auto sum = static_cast<std::int64_t>(*claimed);
  return sum == checksum_of<unsigned char>(block) || sum == checksum_of<signed char>(block);
}

/// Resizes without writing zeros first, which would take a tenth of the whole pass.
void grow(std::string& text, std::size_t size) {
#ifdef __cpp_lib_string_resize_and_overwrite
  text.resize_and_overwrite(size, [](char*, std::size_t all) { return all; });
#else
  text.resize(size);
#endif
}

/// Some programs write no mark, but a copy may also have been cut off just there.
void warn_of_missing_mark(const std::filesystem::path& path) {
  static std::once_flag once;
  std::call_once(once, [&] {
    std::cerr << fmt::format(
        "lockstep: warning: '{}' has no end-of-archive mark: if the file is truncated, samples are missing. "
        "(Reported for the first such file only.)\n",
        path.string());
  });
}

}  // namespace

TarReader::TarReader(const std::filesystem::path& path)
    : path_(path), file_(path, /*by_content=*/true), ahead_(kAheadOfSmall) {}

void TarReader::fail(const std::string& what) const {
  throw DataError(member_.empty()
                      ? fmt::format("'{}' cannot be read as tar: {}.", path_.string(), what)
                      : fmt::format("'{}', member '{}': {}.", path_.string(), member_.substr(0, 200), what));
}

std::optional<TarMember> TarReader::next() {
  if (!skip(left_ + padding_)) fail("the file ends in it: half of a shard");
  left_ = padding_ = 0;
  Extension extension;
  Header header;
  while (read_header(header)) {
    if (!take_extension(header, extension)) return member_of(header, std::move(extension));
  }
  return std::nullopt;
}

std::string TarReader::read() {
  std::string bytes;
  while (left_ > 0) {
    const auto some = std::min(left_, kPiece);
    const auto before = bytes.size();
    grow(bytes, before + some);
    if (!fill(bytes.data() + before, some)) fail("the file ends before it");
    left_ -= some;
  }
  return bytes;
}

bool TarReader::read_header(Header& header) {
  static_assert(sizeof(Header) == kBlock);
  const std::span<char, kBlock> block(reinterpret_cast<char*>(&header), kBlock);
  if (!fill(block.data(), block.size())) {
    if (member_.empty()) fail("it is empty");
    warn_of_missing_mark(path_);
    return false;
  }
  if (std::all_of(block.begin(), block.end(), [](char byte) { return byte == 0; })) return false;
  if (!is_whole(block, read_field(header.checksum)))
    fail(member_.empty() ? "it does not begin with a header" : "no header follows it");
  return true;
}

bool TarReader::take_extension(const Header& header, Extension& extension) {
  constexpr std::string_view kOnesThatExtend = "LKxgXS";
  if (kOnesThatExtend.find(header.type) == std::string_view::npos) return false;
  if (header.type == 'S') fail("the member after it is sparse, which is not read");
  const auto size = number_of(header.size);
  if (!size || *size > kMostText)
    fail("the header after it claims a long name or records of impossible length");
  auto text = read_text(*size);
  if (header.type == 'L') extension.name = text.substr(0, text.find('\0'));
  // Links are skipped, and so are the defaults of all members ('g'), which have no name.
  if (header.type == 'x' || header.type == 'X') take_records(text, extension);
  return true;
}

/// Parses pax records: "LENGTH NAME=VALUE\n"; the length counts the whole record.
void TarReader::take_records(std::string_view records, Extension& extension) {
  while (!records.empty()) {
    std::size_t length = 0;
    const auto [digits, error] = std::from_chars(records.data(), records.data() + records.size(), length);
    const auto begin = static_cast<std::size_t>(digits - records.data()) + 1;
    if (error != std::errc() || length > records.size() || length <= begin || records[begin - 1] != ' ' ||
        records[length - 1] != '\n')
      fail("the pax header after it is damaged");
    const auto record = records.substr(begin, length - begin - 1);
    records.remove_prefix(length);
    const auto equals = record.find('=');
    if (equals == std::string_view::npos) fail("the pax header after it is damaged");
    const auto name = record.substr(0, equals);
    const auto value = record.substr(equals + 1);
    if (name == "path") extension.name = value;
    if (name.starts_with("GNU.sparse.")) fail("the member after it is sparse, which is not read");
    if (name != "size") continue;
    extension.size = parse_number<std::uint64_t>(value);
    if (!extension.size) fail("the pax header after it is damaged");
  }
}

TarMember TarReader::member_of(const Header& header, Extension extension) {
  TarMember member;
  member.name = std::string(read_field(header.name));
  // GNU's own format has other fields there.
  const bool has_prefix = std::string_view(header.magic.data(), 6) == std::string_view("ustar\0", 6);
  if (has_prefix && header.prefix[0] != 0)
    member.name = fmt::format("{}/{}", read_field(header.prefix), member.name);
  if (extension.name) member.name = *std::move(extension.name);
  member.name = utf8_text(member.name);
  member_ = member.name.substr(0, member.name.find('\0'));
  check_name(member.name);
  const auto size = extension.size ? extension.size : number_of(header.size);
  if (!size || *size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) - kBlock)
    fail("its size is not a number that a file can have");
  const bool is_plain = header.type == '0' || header.type == '\0' || header.type == '7';
  // A name ending in '/' is an old way to write a folder.
  member.is_file = is_plain && !(header.type == '\0' && member.name.ends_with('/'));
  // Links, devices and folders have no content, whatever size they claim.
  constexpr std::string_view kWithoutBytes = "123456";
  member.size = kWithoutBytes.find(header.type) == std::string_view::npos ? *size : 0;
  const auto in_file = file_.left();
  if (in_file && member.size > *in_file + (end_ - begin_)) {
    fail(fmt::format("it claims {} bytes, but the file has only {} more: half of a shard", member.size,
                     *in_file + (end_ - begin_)));
  }
  left_ = member.size;
  padding_ = padding_of(member.size);
  return member;
}

void TarReader::check_name(const std::string& name) const {
  if (name.empty()) fail("a member has no name");
  if (name.find('\0') != std::string::npos) fail("its name has a zero byte");
  for (std::size_t begin = 0; begin < name.size();) {
    const auto end = std::min(name.find('/', begin), name.size());
    if (std::string_view(name).substr(begin, end - begin) == "..") fail("its name leaves the folder");
    begin = end + 1;
  }
}

std::string TarReader::read_text(std::uint64_t size) {
  std::string text(size + padding_of(size), '\0');
  if (!fill(text.data(), text.size())) fail("the file ends in the header after it: half of a shard");
  text.resize(size);
  return text;
}

bool TarReader::fill(char* to, std::size_t bytes) {
  const auto held = std::min(bytes, end_ - begin_);
  std::memcpy(to, ahead_.data() + begin_, held);
  begin_ += held;
  auto left = std::span(to, bytes).subspan(held);
  while (!left.empty()) {
    // The buffer is empty at this point.
    const auto room = std::span(ahead_).first(bytes < kLarge ? kAheadOfSmall : kAheadOfLarge);
    const auto count = file_.read(left, room);
    if (count == 0 && left.size() == bytes) return false;
    if (count == 0) fail("the file ends in the middle: half of a shard");
    const auto used = std::min(count, left.size());
    left = left.subspan(used);
    begin_ = 0;
    end_ = count - used;
  }
  return true;
}

bool TarReader::skip(std::uint64_t bytes) {
  const auto held = std::min<std::uint64_t>(bytes, end_ - begin_);
  begin_ += held;
  return bytes == held || file_.skip(bytes - held);
}

}  // namespace lockstep::stream
