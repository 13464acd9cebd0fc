#include "loader_json.hpp"

#include <nlohmann/json.hpp>

#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/input_file.hpp"

namespace lockstep::train {

using nlohmann::json;

json to_json(const DataLoaderState& state) {
  return {{"seed", state.seed},     {"epoch", state.epoch},           {"position", state.position},
          {"length", state.length}, {"batch_size", state.batch_size}, {"num_replicas", state.num_replicas}};
}

DataLoaderState loader_state_from(const json& document) {
  return {.seed = document.at("seed").get<std::uint64_t>(),
          .epoch = document.at("epoch").get<std::int64_t>(),
          .position = document.at("position").get<std::int64_t>(),
          .length = document.at("length").get<std::int64_t>(),
          .batch_size = document.at("batch_size").get<std::int64_t>(),
          .num_replicas = document.at("num_replicas").get<int>()};
}

void write_json(const std::filesystem::path& path, const json& document) {
  AtomicFile file(path);
  file.write(document.dump(2) + "\n");
  file.commit();
}

json read_json(const std::filesystem::path& path) {
  InputFile file(path);
  std::string text(file.size(), '\0');
  file.read(text.data(), text.size());
  try {
    return json::parse(text);
  } catch (const json::exception& error) {
    throw DataError("'" + path.string() + "' is no JSON: " + error.what());
  }
}

}  // namespace lockstep::train
