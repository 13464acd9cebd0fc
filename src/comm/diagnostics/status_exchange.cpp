#include "comm/diagnostics/status_exchange.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "comm/group_key_value_store.hpp"
#include "coordination/json_lines.hpp"

namespace lockstep::comm {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FlightRecorder::Progress, collectives, messages, finished)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankReport::Group, progress, recent)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankReport, rank, activity, groups)

namespace {

constexpr std::uint64_t kRoundsKept = 4;
constexpr const char* kDeparted = "departed";

std::string round_key(const char* what, std::uint64_t round) { return fmt::format("{}/{}", what, round); }
std::string wake_key(int rank, std::uint64_t round) { return fmt::format("wake/{}/{}", rank, round); }

}  // namespace

StatusExchange::StatusExchange(const Store& store, int rank, int size)
    : store_(key_value_store(store)), rank_(rank), size_(size) {}

void StatusExchange::begin(std::uint64_t round) const {
  std::vector<std::pair<std::string, std::string>> wakes;
  for (int rank = 0; rank < size_; ++rank) wakes.emplace_back(wake_key(rank, round), "1");
  store_->set_many(wakes);
}

bool StatusExchange::await(std::uint64_t round, Milliseconds limit) const {
  return store_->wait(wake_key(rank_, round), limit);
}

void StatusExchange::wake_self(std::uint64_t round) const { store_->set(wake_key(rank_, round), "1"); }

void StatusExchange::answer(std::uint64_t round, const RankReport& report) const {
  coordination::append_line(*store_, round_key("answers", round), report);
  if (store_->add(round_key("answered", round), 1) == size_) store_->set(round_key("complete", round), "1");
  store_->erase(wake_key(rank_, round));
  if (rank_ != 0 || round <= kRoundsKept) return;
  for (const char* what : {"answers", "answered", "complete"})
    store_->erase(round_key(what, round - kRoundsKept));
}

bool StatusExchange::await_answers(std::uint64_t round, Milliseconds limit) const {
  // contains() first: it fails immediately if the store is unreachable, while a wait would block.
  const std::string complete = round_key("complete", round);
  return store_->contains(complete) || store_->wait(complete, limit);
}

std::map<int, RankReport> StatusExchange::answers(std::uint64_t round) const {
  std::map<int, RankReport> reports;
  for (const auto& line : coordination::read_lines(*store_, round_key("answers", round)))
    reports.insert_or_assign(line.at("rank").get<int>(), line.get<RankReport>());
  return reports;
}

void StatusExchange::depart(const std::string& how) const {
  coordination::append_line(*store_, kDeparted, {{"rank", rank_}, {"how", how}});
}

std::map<int, std::string> StatusExchange::departed() const {
  std::map<int, std::string> result;
  for (const auto& line : coordination::read_lines(*store_, kDeparted))
    result.emplace(line.at("rank").get<int>(), line.at("how").get<std::string>());
  return result;
}

}  // namespace lockstep::comm
