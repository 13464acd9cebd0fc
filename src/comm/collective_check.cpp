#include "collective_check.hpp"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <utility>

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

void CollectiveCheck::before(const Ticket& ticket, const OperationFacts& facts) {
  if (!is_due(facts)) return;
  const bool detail = level_ == CollectiveCheckLevel::detail;
  const bool all_here = post(ticket.sequence, claim_of(facts), detail ? timeout_ : kPatience);
  compare_posted(ticket.sequence, facts);
  if (all_here) return;
  if (detail) throw TimeoutError("the check before " + facts.text() + " timed out");
  compare_reported(ticket.sequence, facts);
}

bool CollectiveCheck::post(std::uint64_t number, const std::string& claim, Milliseconds limit) {
  const std::string key = std::to_string(number);
  const std::string line = json{{"place", members_.rank}, {"is", claim}}.dump();
  store_.append(key, line + "\n");
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

void CollectiveCheck::compare_posted(std::uint64_t number, const OperationFacts& facts) const {
  const std::string own = claim_of(facts);
  std::istringstream lines(store_.get(std::to_string(number), kAtOnce));
  for (std::string line; std::getline(lines, line);) {
    const json entry = json::parse(line);
    const std::string claim = entry.at("is").get<std::string>();
    if (claim != own) refuse(number, own, entry.at("place").get<int>(), claim);
  }
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
      refuse(number, facts.claim(), place, there->second);
  }
}

void CollectiveCheck::refuse(std::uint64_t number, const std::string& own, int other,
                             const std::string& others) const {
  throw CommunicationError(members_.who + ": the ranks do different things in collective #" +
                           std::to_string(number) + ": " + own + " here, but rank " +
                           std::to_string(members_.names.at(static_cast<std::size_t>(other))) + " does " +
                           others + ". All ranks must call the same operations in the same order, with " +
                           "tensors of the same size and dtype");
}

}  // namespace lockstep::comm
