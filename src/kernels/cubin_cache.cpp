#include "kernels/cubin_cache.hpp"

#include <fmt/core.h>

#include <fstream>
#include <iterator>

#include "core/checksum.hpp"
#include "core/file_system.hpp"
#include "core/text.hpp"
#include "datasets/cache/cache_folder.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "net/sha256.hpp"

namespace lockstep::kernels {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "lockstep kernel 1";

/// Format, symbol and checksum in a line each, and the bytes.
std::string file_text(const Cubin& cubin) {
  const std::string body = cubin.symbol + '\n' + cubin.bytes;
  return fmt::format("{}\n{}\n{}", kFormat, checksum_text(crc32c(body.data(), body.size())), body);
}

std::optional<Cubin> read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string format, checksum;
  if (!std::getline(file, format) || format != kFormat || !std::getline(file, checksum)) return std::nullopt;
  const std::string body{std::istreambuf_iterator<char>(file), {}};
  const std::size_t end = body.find('\n');
  if (end == std::string::npos || checksum_text(crc32c(body.data(), body.size())) != checksum)
    return std::nullopt;
  return Cubin{.symbol = body.substr(0, end), .bytes = body.substr(end + 1)};
}

/// A kernel that cannot be kept is compiled again by the next process.
void keep(const fs::path& path, const Cubin& cubin) {
  try {
    file_system::make_folders(path.parent_path());
    write_atomically(path, file_text(cubin));
  } catch (const Error&) {
  }
}

}  // namespace

fs::path CubinCache::path_of(const std::string& key) const {
  return folder_ / (format_hex(net::sha256(key)) + ".cubin");
}

std::optional<Cubin> CubinCache::find(const std::string& key) const {
  return folder_.empty() ? std::nullopt : read(path_of(key));
}

Cubin CubinCache::get(const std::string& key, const std::function<Cubin()>& make) const {
  if (auto known = find(key)) return std::move(*known);
  Cubin made = make();
  if (!folder_.empty()) keep(path_of(key), made);
  return made;
}

fs::path cubin_folder() {
  try {
    return default_cache_folder(process_environment()) / "kernels";
  } catch (const UsageError&) {
    return {};
  }
}

}  // namespace lockstep::kernels
