#include "file_hash.hpp"

#include <algorithm>
#include <vector>

#include "lockstep/core/input_file.hpp"
#include "net/sha256.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kPiece = 1 << 20;

void take_in(net::Sha256& hash, const fs::path& path) {
  InputFile file(path);
  std::string piece;
  for (std::uint64_t left = file.size(); left > 0; left -= piece.size()) {
    piece.resize(static_cast<std::size_t>(std::min(left, kPiece)));
    file.read(piece.data(), piece.size());
    hash.update(piece);
  }
}

std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& each : fs::recursive_directory_iterator(folder)) {
    if (each.is_regular_file()) files.push_back(each.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::string sha256_of_file(const fs::path& path) {
  net::Sha256 hash;
  if (!fs::is_directory(path)) {
    take_in(hash, path);
    return net::hex(hash.finish());
  }
  for (const auto& file : files_below(path)) {
    // With its end, so that no two lists of names and contents give the same bytes.
    hash.update(file.lexically_relative(path).string()).update(std::string_view("\0", 1));
    hash.update(std::to_string(fs::file_size(file))).update(std::string_view("\0", 1));
    take_in(hash, file);
  }
  return net::hex(hash.finish());
}

}  // namespace lockstep
