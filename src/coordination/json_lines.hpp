#pragma once

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "coordination/key_value_store.hpp"
#include "core/json_text.hpp"

// Lists that several ranks write: each appends a line of JSON to a key. *Local*.
namespace lockstep::coordination {

inline void append_line(KeyValueStore& store, const std::string& key, const nlohmann::json& line) {
  store.append(key, json_text(line) + "\n");
}

/// In the order in which the store received them; empty if there is none.
inline std::vector<nlohmann::json> read_lines(KeyValueStore& store, const std::string& key) {
  std::vector<nlohmann::json> result;
  if (!store.contains(key)) return result;
  std::istringstream text(store.get(key));
  for (std::string line; std::getline(text, line);) result.push_back(nlohmann::json::parse(line));
  return result;
}

}  // namespace lockstep::coordination
