#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "core/utf8_check.hpp"

namespace lockstep {

/// The document with utf8_text() of its texts and names.
template <typename Json>
Json utf8_json(const Json& json) {
  if (json.is_string()) return utf8_text(json.template get_ref<const std::string&>());
  if (json.is_array()) {
    Json list = Json::array();
    for (const auto& element : json) list.push_back(utf8_json(element));
    return list;
  }
  if (!json.is_object()) return json;
  Json object = Json::object();
  for (const auto& [name, value] : json.items()) object[utf8_text(name)] = utf8_json(value);
  return object;
}

/// A document as JSON text, in one line or indented. Use it for all that comes from outside: the library's
/// own dump() throws for texts that are not UTF-8. They are written by utf8_text().
template <typename Json>
std::string json_text(const Json& json, int indent = -1) {
  try {
    return json.dump(indent);
  } catch (const nlohmann::json::type_error&) {
    return utf8_json(json).dump(indent);
  }
}

/// The same in one line, with U+FFFD in the place of bytes that are not UTF-8, as other programs write them.
template <typename Json>
std::string json_text_with_replacements(const Json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace lockstep
