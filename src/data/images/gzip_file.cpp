#include "data/images/gzip_file.hpp"

#include <fmt/core.h>
#include <zlib.h>

#include <algorithm>

#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

constexpr std::uint64_t kMostOfAByte = 1032;
constexpr std::size_t kMostAtOnce = 1 << 30;

gzFile handle(const std::shared_ptr<void>& file) { return static_cast<gzFile>(file.get()); }

}  // namespace

GzipFile::GzipFile(const std::filesystem::path& path)
    : path_(path), file_(gzopen(path.c_str(), "rbe"), [](void* file) {
        if (file != nullptr) gzclose_r(static_cast<gzFile>(file));
      }) {
  std::error_code failure;
  most_bytes_ = std::filesystem::file_size(path, failure) * kMostOfAByte;
  if (!file_ || failure) throw DataError(fmt::format("'{}' cannot be opened.", path.string()));
}

std::size_t GzipFile::read_some(void* data, std::size_t bytes) {
  const int count = gzread(handle(file_), data, static_cast<unsigned>(std::min(bytes, kMostAtOnce)));
  int code = Z_OK;
  const char* text = gzerror(handle(file_), &code);
  if (count >= 0 && (code == Z_OK || code == Z_STREAM_END)) return static_cast<std::size_t>(count);
  throw DataError(fmt::format("'{}', compressed with gzip, is {}.", path_.string(),
                              code == Z_BUF_ERROR ? "truncated" : fmt::format("broken: {}", text)));
}

void GzipFile::read(void* data, std::size_t bytes) {
  for (auto* to = static_cast<char*>(data); bytes > 0;) {
    const auto count = read_some(to, bytes);
    if (count == 0)
      throw DataError(fmt::format("'{}', compressed with gzip, ends too early.", path_.string()));
    to += count;
    bytes -= count;
  }
}

bool GzipFile::at_end() {
  char more = 0;
  return read_some(&more, 1) == 0;
}

}  // namespace lockstep
