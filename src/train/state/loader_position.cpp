#include "train/state/loader_position.hpp"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

namespace lockstep::train {
namespace {

using nlohmann::json;

/// Reads the older format, in which the position counted batches of one rank of `batch_size` samples.
DataLoaderState older_state_from(const json& document) {
  const auto length = document.at("length").get<std::int64_t>();
  // Computed in floating point, so that a damaged file cannot cause an overflow.
  const double consumed = document.at("position").get<double>() * document.at("batch_size").get<double>() *
                          document.at("num_replicas").get<double>();
  const bool whole = consumed >= static_cast<double>(length);
  return {.samples = whole ? length : static_cast<std::int64_t>(consumed),
          .dataset = fmt::format("{} samples", length)};
}

}  // namespace

json to_json(const DataLoaderState& state) {
  json document{{"seed", state.seed},
                {"epoch", state.epoch},
                {"samples", state.samples},
                {"dataset", state.dataset},
                {"order", state.order}};
  if (!state.parts.empty()) document["parts"] = state.parts;
  return document;
}

DataLoaderState loader_state_from(const json& document) {
  DataLoaderState state;
  if (document.contains("position")) {
    state = older_state_from(document);
  } else {
    state.samples = document.at("samples").get<std::int64_t>();
    state.dataset = document.at("dataset").get<std::string>();
    state.order = document.at("order").get<std::string>();
    state.parts = document.value("parts", std::vector<std::string>());
  }
  state.seed = document.at("seed").get<std::uint64_t>();
  state.epoch = document.at("epoch").get<std::int64_t>();
  return state;
}

}  // namespace lockstep::train
