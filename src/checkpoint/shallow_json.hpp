#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

#include "core/input_file.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

/// Parses JSON from an untrusted file. Stops at the depth `deepest`, because the parser's tree could
/// otherwise become much larger than the text. Throws std::exception if the text is invalid or nested more
/// deeply.
inline nlohmann::json parse_shallow_json(std::string_view text, int deepest) {
  const auto shallow = [deepest](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    if (depth > deepest) throw std::invalid_argument("it is nested too deeply");
    return true;
  };
  return nlohmann::json::parse(text, shallow);
}

/// The text of a file that is no `kind` ("a manifest") if it has more than `longest` bytes. Throws DataError.
inline std::string read_short_file(const std::filesystem::path& path, std::uint64_t longest,
                                   const char* kind) {
  InputFile file(path);
  if (file.size() > longest) throw DataError(fmt::format("'{}' is too long for {}.", path.string(), kind));
  std::string text(file.size(), '\0');
  file.read(text.data(), text.size());
  return text;
}

/// Whether a file that is named in such JSON stays in its folder.
inline bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string_view::npos;
}

}  // namespace lockstep
