#include "comm/diagnostics/status_exchange.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "comm/errors.hpp"

namespace lockstep::comm {
namespace {

using nlohmann::json;

constexpr const char* kDeparted = "departed";
constexpr std::uint64_t kRoundsKept = 4;
constexpr std::chrono::seconds kAtOnce{1};

std::string key(const char* what, std::uint64_t round) { return what + std::to_string(round); }
std::string wake_key(int rank, std::uint64_t round) {
  return "wake/" + std::to_string(rank) + "/" + std::to_string(round);
}

std::string line_of(const RankReport& report) {
  json groups = json::object();
  for (const auto& [name, group] : report.groups) {
    json recent = json::object();
    for (const auto& [number, text] : group.recent) recent[std::to_string(number)] = text;
    groups[name] = {{"collectives", group.progress.collectives},
                    {"messages", group.progress.messages},
                    {"finished", group.progress.finished},
                    {"recent", recent}};
  }
  const json all{{"rank", report.rank}, {"doing", report.doing}, {"groups", groups}};
  return all.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

RankReport report_of(const json& line) {
  RankReport report{line.at("rank").get<int>(), line.at("doing").get<std::string>(), {}};
  for (const auto& [name, entry] : line.at("groups").items()) {
    auto& group = report.groups[name];
    group.progress = {entry.at("collectives").get<std::uint64_t>(), entry.at("messages").get<std::uint64_t>(),
                      entry.at("finished").get<std::uint64_t>()};
    for (const auto& [number, text] : entry.at("recent").items())
      group.recent.emplace(std::stoull(number), text.get<std::string>());
  }
  return report;
}

template <class Take>
void for_each_line(const std::string& text, Take&& take) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) take(json::parse(line));
}

}  // namespace

StatusExchange::StatusExchange(Store store, int rank, int size)
    : store_(std::move(store)), rank_(rank), size_(size) {}

void StatusExchange::begin(std::uint64_t round) const {
  std::vector<std::string> keys;
  std::vector<std::vector<std::uint8_t>> values(static_cast<std::size_t>(size_), {'1'});
  for (int rank = 0; rank < size_; ++rank) keys.push_back(wake_key(rank, round));
  // One message, however many ranks there are.
  translated([&] { store_.c10d_store()->multiSet(keys, values); },
             [] { return "the peer monitor: a question to the other ranks failed"; });
}

bool StatusExchange::await(std::uint64_t round, Milliseconds limit) const {
  return store_.wait(wake_key(rank_, round), limit);
}

void StatusExchange::wake_self(std::uint64_t round) const { store_.set(wake_key(rank_, round), "1"); }

void StatusExchange::answer(std::uint64_t round, const RankReport& report) const {
  store_.append(key("answers/", round), line_of(report));
  if (store_.add(key("answered/", round), 1) == size_) store_.set(key("complete/", round), "1");
  store_.erase(wake_key(rank_, round));
  if (rank_ == 0 && round > kRoundsKept) forget(round - kRoundsKept);
}

std::map<int, RankReport> StatusExchange::answers(std::uint64_t round, Milliseconds limit) const {
  std::map<int, RankReport> reports;
  // Asked first, because a store that is out of reach shows by that alone; a wait would first wait.
  if (!store_.contains(key("complete/", round))) store_.wait(key("complete/", round), limit);
  if (!store_.contains(key("answers/", round))) return reports;
  for_each_line(store_.get(key("answers/", round), kAtOnce), [&](const json& line) {
    RankReport report = report_of(line);
    reports.insert_or_assign(report.rank, std::move(report));
  });
  return reports;
}

void StatusExchange::depart(const std::string& how) const {
  store_.append(kDeparted, json{{"rank", rank_}, {"how", how}}.dump() + "\n");
}

std::map<int, std::string> StatusExchange::departed() const {
  std::map<int, std::string> result;
  if (!store_.contains(kDeparted)) return result;
  for_each_line(store_.get(kDeparted, kAtOnce), [&](const json& line) {
    result.emplace(line.at("rank").get<int>(), line.at("how").get<std::string>());
  });
  return result;
}

void StatusExchange::forget(std::uint64_t round) const {
  for (const char* what : {"answers/", "answered/", "complete/"}) store_.erase(key(what, round));
}

}  // namespace lockstep::comm
