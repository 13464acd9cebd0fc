#include "rendezvous/wall_clock.hpp"

#include <nlohmann/json.hpp>

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;

/// Times further from now than this are none.
constexpr std::int64_t kMost = 1LL << 50;

std::int64_t wall_clock() {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<milliseconds>(since_1970).count();
}

}  // namespace

void stamp_with_wall_clock(nlohmann::json& message) { message["wall_clock"] = wall_clock(); }

std::optional<milliseconds> clock_ahead(const nlohmann::json& message) {
  const auto stamp = message.find("wall_clock");
  if (stamp == message.end() || !stamp->is_number_integer()) return std::nullopt;
  const auto there = stamp->get<std::int64_t>();
  if (there < -kMost || there > kMost) return std::nullopt;
  return milliseconds(there - wall_clock());
}

}  // namespace lockstep::launch
