#include "rendezvous/rank_messages.hpp"

#include <algorithm>

#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

constexpr std::size_t kMostRanks = 1 << 16;
constexpr std::size_t kLongestText = 512;
/// A month; what is longer is a lie.
constexpr std::int64_t kLongestStill = 31LL * 24 * 3600 * 1000;

[[noreturn]] void refuse() {
  throw DataError(
      "a message between launchers has no valid list of ranks. Use the same version of lockstep on "
      "every node.");
}

/// [rank, place, still, status, process state, activity, what, number, step]; without the last four: it never
/// beat.
Json to_values(const RankStatus& view) {
  Json values = {view.rank, view.place, view.still.count(), nullptr, std::string(1, view.process_state)};
  if (view.status) values[3] = *view.status;
  if (!view.beat) return values;
  values.push_back(static_cast<int>(view.beat->activity));
  values.push_back(view.beat->what);
  values.push_back(view.beat->number);
  values.push_back(view.beat->step);
  return values;
}

std::int64_t number_at(const Json& values, std::size_t index, std::int64_t least, std::int64_t most) {
  const Json& value = values[index];
  if (!value.is_number_integer()) refuse();
  const auto number = value.get<std::int64_t>();
  if (number < least || number > most) refuse();
  return number;
}

std::string text_at(const Json& values, std::size_t index) {
  if (!values[index].is_string()) refuse();
  return values[index].get<std::string>().substr(0, kLongestText);
}

HeartbeatRecord read_beat(const Json& values) {
  HeartbeatRecord beat;
  beat.activity = static_cast<Activity>(number_at(values, 5, 1, 3));
  beat.what = text_at(values, 6);
  beat.number = static_cast<std::uint64_t>(number_at(values, 7, INT64_MIN, INT64_MAX));
  beat.step = static_cast<std::uint64_t>(number_at(values, 8, INT64_MIN, INT64_MAX));
  return beat;
}

RankStatus read_view(const Json& values) {
  if (!values.is_array() || (values.size() != 5 && values.size() != 9)) refuse();
  RankStatus view;
  view.rank = static_cast<int>(number_at(values, 0, 0, 1 << 24));
  view.place = text_at(values, 1);
  view.still = std::chrono::milliseconds(number_at(values, 2, 0, kLongestStill));
  if (!values[3].is_null()) view.status = static_cast<int>(number_at(values, 3, 0, 0xffff));
  const std::string state = text_at(values, 4);
  if (state.size() != 1) refuse();
  view.process_state = state.front();
  if (values.size() == 9) view.beat = read_beat(values);
  return view;
}

}  // namespace

Json still_message(int round, const std::vector<RankStatus>& views) {
  Json ranks = Json::array();
  for (const auto& view : views) ranks.push_back(to_values(view));
  return {{"type", "still"}, {"round", round}, {"ranks", ranks}};
}

std::vector<RankStatus> read_still(const Json& message) {
  const auto ranks = message.find("ranks");
  if (ranks == message.end() || !ranks->is_array() || ranks->size() > kMostRanks) refuse();
  std::vector<RankStatus> views;
  std::transform(ranks->begin(), ranks->end(), std::back_inserter(views), read_view);
  return views;
}

}  // namespace lockstep::launch
