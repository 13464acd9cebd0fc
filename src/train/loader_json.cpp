#include "loader_json.hpp"

#include <nlohmann/json.hpp>

#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/input_file.hpp"

namespace lockstep::train {

using nlohmann::json;

namespace {

/// What was written before the position counted samples: batches of one rank, and what a batch was.
DataLoaderState older_state_from(const json& document) {
  const auto length = document.at("length").get<std::int64_t>();
  // As a floating-point number, so that a damaged file cannot overflow it.
  const double consumed = document.at("position").get<double>() * document.at("batch_size").get<double>() *
                          document.at("num_replicas").get<double>();
  const bool whole = consumed >= static_cast<double>(length);
  return {.samples = whole ? length : static_cast<std::int64_t>(consumed),
          .dataset = std::to_string(length) + " samples"};
}

}  // namespace

json to_json(const DataLoaderState& state) {
  return {{"seed", state.seed},
          {"epoch", state.epoch},
          {"samples", state.samples},
          {"dataset", state.dataset},
          {"order", state.order}};
}

DataLoaderState loader_state_from(const json& document) {
  DataLoaderState state;
  if (document.contains("position")) {
    state = older_state_from(document);
  } else {
    state.samples = document.at("samples").get<std::int64_t>();
    state.dataset = document.at("dataset").get<std::string>();
    state.order = document.at("order").get<std::string>();
  }
  state.seed = document.at("seed").get<std::uint64_t>();
  state.epoch = document.at("epoch").get<std::int64_t>();
  return state;
}

FileDigest write_json(const std::filesystem::path& path, const json& document) {
  return write_atomically(path, document.dump(2) + "\n");
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
