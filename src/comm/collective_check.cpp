#include "collective_check.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <utility>

#include "call_site.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::comm {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kAtOnce{1};

}  // namespace

CollectiveCheck::CollectiveCheck(Store store, Membership members, Milliseconds timeout)
    : store_(std::move(store)), members_(std::move(members)), timeout_(timeout) {}

/// Also the shape counts, and what the program calls the operation.
std::string CollectiveCheck::claim_of(const OperationFacts& facts) const {
  if (facts.sizes_may_differ) return facts.claim();
  const std::string label{OperationLabel::current().view()};
  return facts.text() + (label.empty() ? "" : " (" + label + ")");
}

void CollectiveCheck::before(const Ticket& ticket, const OperationFacts& facts, const RowCounts* rows) {
  Claim own{members_.rank, claim_of(facts), call_site(), {}};
  if (rows != nullptr) own.rows = *rows;
  const bool all_here = post(ticket.sequence, own);
  const auto claims = posted(ticket.sequence);
  for (const auto& claim : claims) {
    if (claim.is != own.is) refuse(ticket.sequence, own, claim);
  }
  if (!all_here) throw TimeoutError("the check before " + facts.text() + " timed out");
  compare_rows(ticket.sequence, claims);
}

bool CollectiveCheck::post(std::uint64_t number, const Claim& claim) {
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
  return last || store_.wait(key + "/all", timeout_);
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
