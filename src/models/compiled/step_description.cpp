#include "models/compiled/step_description.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <torch/version.h>

#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "lockstep/core/error.hpp"

namespace lockstep::models::compiled {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;

Layout layout_of(const json& value) {
  return {value.at("shape").get<std::vector<std::int64_t>>(),
          value.at("stride").get<std::vector<std::int64_t>>(), dtype_named(value.at("dtype"))};
}

Place place_of(const json& value) {
  static const std::map<std::string, Place::Kind> kinds = {
      {"parameter", Place::Kind::parameter}, {"buffer", Place::Kind::buffer},
      {"input", Place::Kind::input},         {"output", Place::Kind::output},
      {"saved", Place::Kind::saved},         {"tangent", Place::Kind::tangent}};
  const auto kind = kinds.find(value.at(0).get<std::string>());
  if (kind == kinds.end()) throw DataError("unknown place '" + value.at(0).get<std::string>() + "'");
  return {kind->second, value.at(1).get<std::size_t>()};
}

std::vector<Place> places_of(const json& values) {
  std::vector<Place> places;
  for (const auto& value : values) places.push_back(place_of(value));
  return places;
}

StepGraph graph_of(const json& value) {
  return {places_of(value.at("arguments")), places_of(value.at("results")), value.value("graph", json())};
}

std::vector<StateTensor> state_of(const json& values) {
  std::vector<StateTensor> state;
  for (const auto& value : values)
    state.push_back({value.at("name"), layout_of(value), value.value("requires_grad", false)});
  return state;
}

/// Number of places of each kind that there are.
std::size_t count_of(Place::Kind kind, const StepDescription& step) {
  switch (kind) {
    case Place::Kind::parameter:
      return step.parameters.size();
    case Place::Kind::buffer:
      return step.buffers.size();
    case Place::Kind::input:
      return step.inputs.size();
    case Place::Kind::saved:
      return step.saved;
    default:
      return step.output_names.size();
  }
}

void check_places(const StepDescription& step) {
  for (const auto* graph : {&step.forward, &step.backward, &step.evaluation}) {
    for (const auto* places : {&graph->arguments, &graph->results}) {
      for (const Place& place : *places) {
        if (place.index < count_of(place.kind, step)) continue;
        throw DataError(fmt::format("place {} of {}", place.index, count_of(place.kind, step)));
      }
    }
  }
}

StepDescription description_of(const json& value) {
  StepDescription step;
  step.identity = value.at("identity");
  step.is_exact = value.at("exact");
  step.parameters = state_of(value.at("parameters"));
  step.buffers = state_of(value.at("buffers"));
  step.saved = value.at("saved");
  step.forward = graph_of(value.at("forward"));
  step.backward = graph_of(value.at("backward"));
  step.evaluation = graph_of(value.at("evaluation"));
  for (const auto& input : value.at("inputs")) step.inputs.push_back(layout_of(input));
  for (const auto& output : value.at("outputs")) {
    const json& tangent = output.at("tangent");
    step.output_names.push_back(output.at("name").get<std::string>());
    step.tangents.push_back(tangent.is_null() ? std::nullopt : std::optional(layout_of(tangent)));
  }
  check_places(step);
  return step;
}

/// The sets of instructions that the processor has, as Linux calls them.
std::set<std::string> instructions_here() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    using Words = std::istream_iterator<std::string>;
    return std::set<std::string>(Words(words), Words());
  }
  return {};
}

/// Why this process cannot run the step; empty if it can.
std::string obstacle(const json& value) {
  const int format = value.at("format");
  if (format != kFormat) return fmt::format("its format is {}, and this version reads {}", format, kFormat);
  const std::string torch = value.at("torch"), machine = value.at("machine");
  if (torch != TORCH_VERSION)
    return fmt::format("it was exported with torch {}, and this is LibTorch {}", torch, TORCH_VERSION);
  utsname here{};
  ::uname(&here);
  if (machine != here.machine)
    return fmt::format("it was exported on {}, and this is {}", machine, here.machine);
  const auto present = instructions_here();
  std::vector<std::string> missing;
  for (const std::string name : value.at("instructions"))
    if (!present.contains(name)) missing.push_back(name);
  if (missing.empty()) return "";
  return fmt::format("its machine code may use instructions that this processor lacks: {}",
                     fmt::join(missing, ", "));
}

}  // namespace

at::ScalarType dtype_named(const std::string& name) {
  static const std::map<std::string, at::ScalarType> dtypes = {
      {"float32", at::kFloat}, {"float64", at::kDouble}, {"float16", at::kHalf}, {"bfloat16", at::kBFloat16},
      {"int64", at::kLong},    {"int32", at::kInt},      {"int16", at::kShort},  {"int8", at::kChar},
      {"uint8", at::kByte},    {"bool", at::kBool}};
  const auto found = dtypes.find(name);
  if (found == dtypes.end()) throw DataError("unknown dtype '" + name + "'");
  return found->second;
}

StepDescription read_step_description(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file)
    throw DataError("'" + path.string() + "' cannot be read: expected what lockstep_export.py writes");
  std::string why;
  try {
    const json value = json::parse(file);
    why = obstacle(value);
    if (why.empty()) return description_of(value);
  } catch (const json::exception& error) {
    throw DataError("'" + path.string() + "' is damaged: " + error.what());
  } catch (const DataError& error) {
    throw DataError("'" + path.string() + "' is damaged: " + error.what());
  }
  throw DataError("'" + path.string() + "' cannot be used: " + why +
                  ". Export the step again with lockstep_export.py, for this machine.");
}

}  // namespace lockstep::models::compiled
