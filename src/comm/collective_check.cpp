#include "collective_check.hpp"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <utility>

#include "call_site.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::comm {
namespace {

using nlohmann::json;
using Milliseconds = CollectiveCheck::Milliseconds;

/// How long a rank waits for others to post the same first use, and for the answers of those who do not.
constexpr Milliseconds kPatience{1000};
constexpr std::chrono::seconds kAtOnce{1};
/// A program whose every operation is new (texts of all lengths) must not fill the memory.
constexpr std::size_t kMostCombinations = 100'000;

/// Only this rank reads it: names are told apart by where they are.
std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) {
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15;
  return std::rotl(hash ^ value, 23) * kOdd;
}

std::uint64_t combination(const OperationFacts& facts) {
  std::uint64_t hash = 1;
  for (const char* name : {facts.name, facts.dtype, facts.reduce_op})
    hash = mixed(hash, reinterpret_cast<std::uintptr_t>(name));
  hash = mixed(hash, static_cast<std::uint64_t>(facts.peer) + 1);
  return mixed(hash, facts.sizes_may_differ ? 0 : static_cast<std::uint64_t>(facts.elements) + 1);
}

/// Sizes that stand for the last batch of each rank, so that they may differ at any time.
bool gathers(const OperationFacts& facts) {
  const std::string_view name = facts.name;
  return name == "gather" || name == "all_gather" || name == "scatter";
}

}  // namespace

CollectiveCheck::CollectiveCheck(Store store, Membership members, std::string group_name,
                                 CollectiveCheckLevel level, Milliseconds timeout,
                                 std::shared_ptr<Watch> watch)
    : store_(std::move(store)),
      members_(std::move(members)),
      group_name_(std::move(group_name)),
      level_(level),
      timeout_(timeout),
      watch_(std::move(watch)) {}

bool CollectiveCheck::is_due(const OperationFacts& facts) {
  if (level_ == CollectiveCheckLevel::detail || gathers(facts)) return true;
  return met_.size() < kMostCombinations && met_.insert(combination(facts)).second;
}

/// In detail the shape counts, and what the program calls the operation.
std::string CollectiveCheck::claim_of(const OperationFacts& facts) const {
  if (level_ != CollectiveCheckLevel::detail || facts.sizes_may_differ) return facts.claim();
  const std::string label{OperationLabel::current().view()};
  return facts.text() + (label.empty() ? "" : " (" + label + ")");
}

void CollectiveCheck::before(const Ticket& ticket, const OperationFacts& facts, const RowCounts* rows) {
  if (!is_due(facts)) return;
  const bool detail = level_ == CollectiveCheckLevel::detail;
  Claim own{members_.rank, claim_of(facts), "", {}};
  if (detail) own.site = call_site();
  if (detail && rows != nullptr) own.rows = *rows;
  const bool all_here = post(ticket.sequence, own, detail ? timeout_ : kPatience);
  const auto claims = posted(ticket.sequence);
  for (const auto& claim : claims) {
    if (claim.is != own.is) refuse(ticket.sequence, own, claim);
  }
  if (all_here) return compare_rows(ticket.sequence, claims);
  if (detail) throw TimeoutError("the check before " + facts.text() + " timed out");
  compare_reported(ticket.sequence, facts);
}

bool CollectiveCheck::post(std::uint64_t number, const Claim& claim, Milliseconds limit) {
  const std::string key = std::to_string(number);
  const json line{{"place", claim.place},
                  {"is", claim.is},
                  {"site", claim.site},
                  {"gives", claim.rows.gives},
                  {"takes", claim.rows.takes}};
  store_.append(key, line.dump() + "\n");
  const bool last = store_.add(key + "/count", 1) == members_.size();
  if (last) {
    store_.set(key + "/all", "1");
    // All have come here, and so are past the one before.
    const std::string before = std::to_string(last_number_);
    for (const auto* part : {"", "/count", "/all"}) store_.erase(before + part);
  }
  last_number_ = number;
  return last || store_.wait(key + "/all", limit);
}

CollectiveCheck::Claim CollectiveCheck::claim_in(const std::string& line) {
  const json entry = json::parse(line);
  return {entry.at("place").get<int>(),
          entry.at("is").get<std::string>(),
          entry.at("site").get<std::string>(),
          {entry.at("gives").get<std::vector<std::int64_t>>(),
           entry.at("takes").get<std::vector<std::int64_t>>()}};
}

std::vector<CollectiveCheck::Claim> CollectiveCheck::posted(std::uint64_t number) const {
  std::vector<Claim> claims;
  std::istringstream lines(store_.get(std::to_string(number), kAtOnce));
  for (std::string line; std::getline(lines, line);) claims.push_back(claim_in(line));
  std::sort(claims.begin(), claims.end(), [](const Claim& a, const Claim& b) { return a.place < b.place; });
  return claims;
}

/// All ranks look at all pairs, so that all find the same one.
void CollectiveCheck::compare_rows(std::uint64_t number, const std::vector<Claim>& claims) const {
  const auto count = [](const std::vector<std::int64_t>& rows, int place) {
    return rows.empty() ? -1 : rows.at(static_cast<std::size_t>(place));
  };
  for (const auto& from : claims) {
    for (const auto& to : claims) {
      const auto gives = count(from.rows.gives, to.place), takes = count(to.rows.takes, from.place);
      if (gives == takes) continue;
      throw CommunicationError(members_.who + ": the split sizes of " + from.is + " #" +
                               std::to_string(number) + " do not agree: " + name_of(from.place) + " gives " +
                               std::to_string(gives) + " rows to " + name_of(to.place) + ", which takes " +
                               std::to_string(takes));
    }
  }
}

void CollectiveCheck::before_message(const OperationFacts& facts) {
  if (level_ != CollectiveCheckLevel::detail) return;
  const bool sends = std::string_view(facts.name) == "send";
  if (facts.peer < 0) open_tags_.insert(facts.tag);
  // The order of those from several ranks is not known beforehand.
  if (facts.peer < 0 || (!sends && open_tags_.contains(facts.tag))) return;
  const int from = sends ? members_.rank : facts.peer, to = sends ? facts.peer : members_.rank;
  const auto number = ++messages_[{from, to, facts.tag}];
  const std::string key = "message/" + std::to_string(from) + "/" + std::to_string(to) + "/" +
                          std::to_string(facts.tag) + "/" + std::to_string(number);
  const std::string size = std::to_string(facts.elements) + " x " + facts.dtype;
  const std::string own = (sends ? "sends " : "receives ") + size;
  const std::string first = store_.set_if_absent(key, own);
  if (first == own) return;
  store_.erase(key);
  if (first.ends_with(" " + size)) return;
  throw CommunicationError(members_.who + ": message " + std::to_string(number) + " with tag " +
                           std::to_string(facts.tag) + " from " + name_of(from) + " to " + name_of(to) +
                           ": this rank " + own + ", but " + name_of(facts.peer) + " " + first);
}

void CollectiveCheck::compare_reported(std::uint64_t number, const OperationFacts& facts) const {
  const auto whereabouts = watch_->ask(kPatience);
  for (int place = 0; place < members_.size(); ++place) {
    const auto report = whereabouts.reports.find(members_.names[static_cast<std::size_t>(place)]);
    if (report == whereabouts.reports.end()) continue;
    const auto group = report->second.groups.find(group_name_);
    if (group == report->second.groups.end()) continue;
    const auto there = group->second.recent.find(number);
    if (there != group->second.recent.end() && there->second != facts.claim())
      refuse(number, {members_.rank, facts.claim(), "", {}}, {place, there->second, "", {}});
  }
}

std::string CollectiveCheck::name_of(int place) const {
  return "rank " + std::to_string(members_.names.at(static_cast<std::size_t>(place)));
}

void CollectiveCheck::refuse(std::uint64_t number, const Claim& own, const Claim& other) const {
  const auto called = [](const Claim& claim) {
    return claim.site.empty() ? "" : " (called by " + claim.site + ")";
  };
  throw CommunicationError(members_.who + ": the ranks do different things in collective #" +
                           std::to_string(number) + ": " + own.is + called(own) + " here, but " +
                           name_of(other.place) + " does " + other.is + called(other) +
                           ". All ranks must call the same operations in the same order, with " +
                           "tensors of the same size and dtype");
}

}  // namespace lockstep::comm
