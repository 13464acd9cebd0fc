#include "json_file.hpp"

#include "data/table/json_tree.hpp"
#include "lockstep/core/input_file.hpp"

namespace lockstep::readers {

std::string read_text(const std::filesystem::path& path, std::uint64_t most) {
  InputFile file(path);
  if (file.size() > most) {
    throw DataError("'" + path.string() + "' has " + std::to_string(file.size()) +
                    " bytes, more than the limit of " + std::to_string(most) + ".");
  }
  std::string text(file.size(), '\0');
  file.read(text.data(), text.size());
  return text;
}

nlohmann::ordered_json read_json_document(const std::filesystem::path& path) {
  constexpr std::uint64_t kMost = std::uint64_t{64} << 20;
  return json_tree::parse<nlohmann::ordered_json>(read_text(path, kMost), "'" + path.string() + "'");
}

}  // namespace lockstep::readers
