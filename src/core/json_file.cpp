#include "json_file.hpp"

#include <cstdint>
#include <fmt/core.h>
#include <string>

#include "json_tree.hpp"
#include "lockstep/core/input_file.hpp"

namespace lockstep {
namespace {

constexpr std::uint64_t kLargestDocument = std::uint64_t{64} << 20;

std::string read_text(const std::filesystem::path& path) {
  InputFile file(path);
  if (file.size() > kLargestDocument) {
    throw DataError(fmt::format("'{}' has {} bytes, more than the limit of {}.", path.string(), file.size(),
                                kLargestDocument));
  }
  std::string text(file.size(), '\0');
  file.read(text.data(), text.size());
  return text;
}

}  // namespace

nlohmann::ordered_json read_json_document(const std::filesystem::path& path) {
  return json_tree::parse<nlohmann::ordered_json>(read_text(path), "'" + path.string() + "'");
}

}  // namespace lockstep
