#include "datasets/readers/packed_file.hpp"

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
#include "core/text.hpp"
#include "datasets/readers/zip_member.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::readers {
namespace {

namespace fs = std::filesystem;
using file_system::reason;

constexpr std::size_t kPiece = std::size_t{1} << 20;

/// A way in which files are compressed.
struct Packing {
  const char* extension;
  /// The extension of a tar file compressed in this way.
  const char* of_tar;
  arrow::Compression::type codec;
  /// What such a file begins with.
  std::string_view magic;
};

constexpr std::array kPackings = {
    Packing{".gz", ".tgz", arrow::Compression::GZIP, "\x1f\x8b\x08"},
    Packing{".bz2", ".tbz2", arrow::Compression::BZ2, "BZh"},
    Packing{".zst", ".tzst", arrow::Compression::ZSTD, "\x28\xb5\x2f\xfd"},
    Packing{".lz4", ".tlz4", arrow::Compression::LZ4_FRAME, "\x04\x22\x4d\x18"},
    Packing{".zip", "", arrow::Compression::GZIP, "PK\x03\x04"},
};

/// Those that are not read, and the programs that unpack them.
const std::map<std::string, std::string> kUnpackers = {{".xz", "xz -dk"},   {".txz", "xz -dk"},
                                                       {".lzma", "xz -dk"}, {".7z", "7z x"},
                                                       {".rar", "unrar x"}, {".br", "brotli -dk"}};

std::string extension_of(const fs::path& path) { return to_lower_case(path.extension().string()); }

/// Null if the name shows none.
const Packing* packing_called(const std::string& extension) {
  if (extension.empty()) return nullptr;
  const auto* found = std::find_if(kPackings.begin(), kPackings.end(), [&](const Packing& one) {
    return extension == one.extension || extension == one.of_tar;
  });
  return found == kPackings.end() ? nullptr : found;
}

std::unique_ptr<arrow::util::CodecOptions> codec_options(const Packing& packing) {
  if (std::string_view(packing.extension) == ".zip") {
    auto deflate = std::make_unique<arrow::util::GZipCodecOptions>();
    deflate->gzip_format = arrow::util::GZipFormat::DEFLATE;
    return deflate;
  }
  auto options = std::make_unique<arrow::util::ZstdCodecOptions>();
  if (packing.codec != arrow::Compression::ZSTD) return std::make_unique<arrow::util::CodecOptions>();
  // ZSTD_d_windowLogMax: what `zstd --long=31` compressed takes 2 GiB.
  constexpr int kWindowLogMax = 100;
  options->decompression_context_params.emplace_back(kWindowLogMax, 31);
  return options;
}

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

bool is_packed(const fs::path& path) {
  const auto extension = extension_of(path);
  const auto unpacker = kUnpackers.find(extension);
  if (unpacker != kUnpackers.end()) {
    throw DataError(fmt::format("'{}': files with the ending '{}' are not read. Unpack it first: {} '{}'.",
                                path.string(), extension, unpacker->second, path.string()));
  }
  return packing_called(extension) != nullptr;
}

fs::path unpacked_name(const fs::path& path) {
  if (!is_packed(path)) return path;
  const auto extension = extension_of(path);
  if (extension == ".zip") return only_member(path).name;
  const bool is_tar = extension == packing_called(extension)->of_tar;
  return is_tar ? path.stem().concat(".tar") : path.stem();
}

std::string packing_of_content(std::string_view bytes) {
  for (const auto& packing : kPackings) {
    // The name of a tar file's first member may begin like bzip2's files.
    const bool is_name = packing.codec == arrow::Compression::BZ2 && !bytes.substr(0, 10).ends_with("1AY&SY");
    if (bytes.starts_with(packing.magic) && !is_name) return packing.extension;
  }
  return {};
}

struct PackedFile::Unpacker {
  std::unique_ptr<arrow::util::Codec> codec;
  std::shared_ptr<arrow::io::InputStream> stream;
  /// Of a ZIP archive: what its file must become, and what it became so far.
  std::optional<ZipMember> member = std::nullopt;
  std::uint64_t bytes = 0;
  std::uint32_t crc32 = 0;

  static arrow::Result<std::unique_ptr<Unpacker>> open(const fs::path& path, const Packing& packing) {
    auto made = std::make_unique<Unpacker>();
    std::shared_ptr<arrow::io::InputStream> packed;
    ARROW_ASSIGN_OR_RAISE(const auto file, arrow::io::ReadableFile::Open(path.string()));
    packed = file;
    if (std::string_view(packing.extension) == ".zip") {
      made->member = only_member(path);
      ARROW_ASSIGN_OR_RAISE(packed, arrow::io::RandomAccessFile::GetStream(
                                        file, static_cast<std::int64_t>(made->member->begin),
                                        static_cast<std::int64_t>(made->member->packed_bytes)));
    }
    made->stream = packed;
    if (made->member && !made->member->is_deflated) return made;
    ARROW_ASSIGN_OR_RAISE(made->codec, arrow::util::Codec::Create(packing.codec, *codec_options(packing)));
    ARROW_ASSIGN_OR_RAISE(made->stream, arrow::io::CompressedInputStream::Make(made->codec.get(), packed));
    return made;
  }

  /// Whether what has been read is what the archive's directory says, as far as that is known.
  bool is_right(std::string_view some) {
    if (!member) return true;
    bytes += some.size();
    crc32 = crc32_of(some, crc32);
    return some.empty() ? bytes == member->bytes && crc32 == member->crc32 : bytes <= member->bytes;
  }
};

PackedFile::PackedFile(const fs::path& path, bool by_content) : path_(path), file_(path) {
  if (is_packed(path)) {
    open(extension_of(path));
    return;
  }
  if (!by_content) return;
  std::array<char, 16> first{};
  const auto count = std::min<std::uint64_t>(first.size(), file_.size());
  file_.read_at(0, first.data(), count);
  const auto packing = packing_of_content({first.data(), count});
  if (!packing.empty()) open(packing);
}

void PackedFile::open(const std::string& packing) {
  auto unpacker = Unpacker::open(path_, *packing_called(packing));
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
  offset_ += static_cast<std::uint64_t>(count);
  return static_cast<std::size_t>(count);
}

std::size_t PackedFile::unpack(std::span<char> to) {
  const auto count = unpacker_->stream->Read(static_cast<std::int64_t>(to.size()), to.data());
  if (!count.ok()) fail("unpacking it failed: " + count.status().message());
  if (!unpacker_->is_right({to.data(), static_cast<std::size_t>(*count)}))
    fail("the file in it is not what the archive's directory says: it is damaged");
  return static_cast<std::size_t>(*count);
}

bool PackedFile::skip(std::uint64_t bytes) {
  if (!unpacker_) {
    if (::lseek(file_.descriptor(), static_cast<off_t>(bytes), SEEK_CUR) < 0) fail(reason(errno));
    offset_ += bytes;
    return offset_ <= file_.size();
  }
  std::vector<char> piece(static_cast<std::size_t>(std::min<std::uint64_t>(bytes, kPiece)));
  while (bytes > 0) {
    const auto count = read(std::span(piece).first(std::min<std::uint64_t>(bytes, piece.size())));
    if (count == 0) return false;
    bytes -= count;
  }
  return true;
}

std::optional<std::uint64_t> PackedFile::left() const {
  if (unpacker_) return std::nullopt;
  return file_.size() - std::min(file_.size(), offset_);
}

std::uint64_t UnpackedFile::whole_lines(std::uint64_t bytes) const {
  std::vector<char> piece(kPiece);
  while (bytes > 0) {
    const auto begin = bytes - std::min<std::uint64_t>(bytes, kPiece);
    const auto count = file_system::uninterrupted(
        [&] { return ::pread(file_.get(), piece.data(), bytes - begin, static_cast<off_t>(begin)); });
    if (count <= 0) break;
    const auto end = std::string_view(piece.data(), static_cast<std::size_t>(count)).rfind('\n');
    if (end != std::string_view::npos) return begin + end + 1;
    bytes = begin;
  }
  return 0;
}

/// What is read in pieces ends with the last whole one before the damage. Byte by byte, nothing is lost.
std::uint64_t UnpackedFile::unpack_rest(std::uint64_t begin) const {
  std::string rest;
  try {
    PackedFile packed(path_);
    packed.skip(begin);
    for (char byte = 0; packed.read({&byte, 1}) == 1;) rest += byte;
  } catch (const DataError&) {  // The damage again.
  }
  write_all(file_, rest);
  return rest.size();
}

UnpackedFile::UnpackedFile(fs::path path, bool keep_lines) : path_(std::move(path)) {
  if (!is_packed(path_)) return;
  PackedFile packed(path_);
  file_ = nameless_file();
  std::vector<char> piece(kPiece);
  std::uint64_t bytes = 0;
  try {
    while (const auto count = packed.read(piece)) {
      write_all(file_, {piece.data(), count});
      bytes += count;
    }
  } catch (const DataError&) {
    if (!keep_lines) throw;
    damage_ = std::current_exception();
    bytes += unpack_rest(bytes);
    if (::ftruncate(file_.get(), static_cast<off_t>(whole_lines(bytes))) < 0)
      throw Error(fmt::format("unpacking '{}' failed: {}.", path_.string(), reason(errno)));
  }
  path_ = fmt::format("/proc/self/fd/{}", file_.get());
}

}  // namespace lockstep::readers
