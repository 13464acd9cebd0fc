#include "comm/cuda/nccl_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "core/text.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::comm {
namespace {

constexpr const char* kVariable = "LOCKSTEP_NCCL_CONFIG";
constexpr std::array<std::string_view, 10> kNumbers = {
    "minCTAs",       "maxCTAs",     "cgaClusterSize",      "CTAPolicy",
    "nvlsCTAs",      "splitShare",  "nChannelsPerNetPeer", "nvlinkCentricSched",
    "collnetEnable", "trafficClass"};

[[noreturn]] void refuse(std::string_view part, const std::string& expected) {
  throw UsageError(fmt::format("{}: '{}': expected {}", kVariable, part, expected));
}

void set(NcclConfig& config, std::string_view part) {
  const auto equals = part.find('=');
  const std::string_view name = part.substr(0, equals);
  const std::string_view value = equals == std::string_view::npos ? "" : part.substr(equals + 1);
  if (name == "netName") {
    if (value.empty()) refuse(part, "the name of a network, such as netName=IB");
    if (!config.net_name.empty()) refuse(part, "each name once");
    config.net_name = value;
    return;
  }
  if (std::ranges::find(kNumbers, name) == kNumbers.end())
    refuse(part, fmt::format("name=value with one of {}, netName", fmt::join(kNumbers, ", ")));
  const auto number = parse_whole_number(value);
  if (!number) refuse(part, "a number from 0 behind the name, such as minCTAs=4");
  if (!config.numbers.emplace(name, *number).second) refuse(part, "each name once");
}

}  // namespace

NcclConfig NcclConfig::from_environment(const Environment& environment) {
  NcclConfig config;
  const std::string text = find_variable(environment, kVariable).value_or("");
  std::string_view rest = text;
  while (!rest.empty()) {
    const auto comma = std::min(rest.find(','), rest.size());
    set(config, rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  const auto least = config.numbers.find("minCTAs"), most = config.numbers.find("maxCTAs");
  if (least != config.numbers.end() && most != config.numbers.end() && least->second > most->second)
    refuse(text, "minCTAs of at most maxCTAs");
  return config;
}

}  // namespace lockstep::comm
