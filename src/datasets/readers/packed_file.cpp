#include "packed_file.hpp"

#include <arrow/io/compressed.h>
#include <arrow/io/file.h>
#include <arrow/util/compression.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/file_system.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::readers {
namespace {

namespace fs = std::filesystem;
using file_system::reason;

const std::map<std::string, arrow::Compression::type> kCodecs = {{".gz", arrow::Compression::GZIP},
                                                                 {".zst", arrow::Compression::ZSTD}};
constexpr std::size_t kPiece = std::size_t{1} << 20;

void write_all(const net::FileDescriptor& file, std::string_view bytes) {
  const int error = file_system::write_all(file.get(), bytes);
  if (error == 0) return;
  throw Error(fmt::format("unpacking a file into '{}' failed: {}. Set TMPDIR to a folder with more room.",
                          fs::temp_directory_path().string(), reason(error)));
}

net::FileDescriptor nameless_file() {
  auto name = (fs::temp_directory_path() / "lockstep-XXXXXX").string();
  net::FileDescriptor file(::mkostemp(name.data(), O_CLOEXEC));
  if (!file) throw Error(fmt::format("'{}' cannot be created: {}.", name, reason(errno)));
  ::unlink(name.c_str());
  return file;
}

}  // namespace

bool is_packed(const fs::path& path) { return kCodecs.contains(path.extension()); }

struct PackedFile::Unpacker {
  std::unique_ptr<arrow::util::Codec> codec;
  std::shared_ptr<arrow::io::InputStream> stream;

  static arrow::Result<std::unique_ptr<Unpacker>> open(const fs::path& path) {
    auto made = std::make_unique<Unpacker>();
    ARROW_ASSIGN_OR_RAISE(made->codec, arrow::util::Codec::Create(kCodecs.at(path.extension())));
    ARROW_ASSIGN_OR_RAISE(const auto packed, arrow::io::ReadableFile::Open(path.string()));
    ARROW_ASSIGN_OR_RAISE(made->stream, arrow::io::CompressedInputStream::Make(made->codec.get(), packed));
    return made;
  }
};

PackedFile::PackedFile(const fs::path& path) : path_(path), file_(path) {
  if (!is_packed(path)) return;
  auto unpacker = Unpacker::open(path);
  if (!unpacker.ok()) fail(unpacker.status().message());
  unpacker_ = *std::move(unpacker);
}

PackedFile::~PackedFile() = default;

void PackedFile::fail(const std::string& why) const {
  throw DataError(fmt::format("cannot read '{}': {}.", path_.string(), why));
}

std::size_t PackedFile::read(std::span<char> first, std::span<char> second) {
  if (unpacker_) {
    if (first.size() >= second.size()) return unpack(first);
    // Decompressing few large pieces is faster than many small ones.
    const auto count = unpack(second);
    const auto used = std::min(count, first.size());
    std::memcpy(first.data(), second.data(), used);
    std::memmove(second.data(), second.data() + used, count - used);
    return count;
  }
  const std::array<iovec, 2> parts{iovec{first.data(), first.size()}, iovec{second.data(), second.size()}};
  const auto count = file_system::uninterrupted(
      [&] { return ::readv(file_.descriptor(), parts.data(), static_cast<int>(parts.size())); });
  if (count < 0) fail(reason(errno));
  place_ += static_cast<std::uint64_t>(count);
  return static_cast<std::size_t>(count);
}

std::size_t PackedFile::unpack(std::span<char> to) {
  const auto count = unpacker_->stream->Read(static_cast<std::int64_t>(to.size()), to.data());
  if (!count.ok()) fail("unpacking it failed: " + count.status().message());
  return static_cast<std::size_t>(*count);
}

void PackedFile::skip(std::uint64_t bytes) {
  if (!unpacker_) {
    if (::lseek(file_.descriptor(), static_cast<off_t>(bytes), SEEK_CUR) < 0) fail(reason(errno));
    place_ += bytes;
    return;
  }
  std::vector<char> piece(static_cast<std::size_t>(std::min<std::uint64_t>(bytes, kPiece)));
  while (bytes > 0) {
    const auto count = read(std::span(piece).first(std::min<std::uint64_t>(bytes, piece.size())));
    if (count == 0) return;
    bytes -= count;
  }
}

std::optional<std::uint64_t> PackedFile::left() const {
  if (unpacker_) return std::nullopt;
  return file_.size() - std::min(file_.size(), place_);
}

UnpackedFile::UnpackedFile(fs::path path) : path_(std::move(path)) {
  if (!is_packed(path_)) return;
  PackedFile packed(path_);
  file_ = nameless_file();
  std::vector<char> piece(kPiece);
  while (const auto count = packed.read(piece)) write_all(file_, {piece.data(), count});
  path_ = fmt::format("/proc/self/fd/{}", file_.get());
}

}  // namespace lockstep::readers
