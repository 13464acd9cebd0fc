#include "trace/host_clocks.hpp"

#include <algorithm>
#include <map>
#include <optional>

namespace lockstep::launch {
namespace {

using Key = std::pair<std::string, std::uint64_t>;

/// Nobody leaves these before everybody has come.
bool ends_together(const TracedOperation& operation) {
  const bool joint =
      operation.name.starts_with("all_") || operation.name.find("barrier") != std::string::npos;
  return joint && !operation.is_message && operation.state == "completed" && operation.end != 0;
}

std::map<Key, std::int64_t> ends_of(const RankTrace& trace) {
  std::map<Key, std::int64_t> ends;
  for (const auto& operation : trace.operations) {
    if (ends_together(operation)) ends.emplace(Key{operation.group, operation.number}, operation.end);
  }
  return ends;
}

/// How far the second's clock is ahead.
std::optional<std::int64_t> lead_of(const RankTrace& trace, const RankTrace& reference) {
  const auto expected = ends_of(reference);
  std::vector<std::int64_t> leads;
  for (const auto& [key, end] : ends_of(trace)) {
    if (const auto there = expected.find(key); there != expected.end()) leads.push_back(end - there->second);
  }
  if (leads.empty()) return std::nullopt;
  const auto middle = leads.begin() + static_cast<std::ptrdiff_t>(leads.size() / 2);
  std::nth_element(leads.begin(), middle, leads.end());
  return *middle;
}

void move(RankTrace& trace, std::int64_t amount) {
  for (auto& operation : trace.operations) {
    operation.begin -= amount;
    if (operation.end != 0) operation.end -= amount;
  }
  for (auto& span : trace.spans) {
    span.begin -= amount;
    span.end -= amount;
  }
}

}  // namespace

void set_clocks(std::vector<RankTrace>& traces) {
  if (traces.empty()) return;
  std::map<std::string, std::int64_t> leads{{traces.front().host, 0}};
  for (auto& trace : traces) {
    const auto known = leads.find(trace.host);
    const auto lead = known != leads.end() ? known->second : lead_of(trace, traces.front()).value_or(0);
    leads.emplace(trace.host, lead);
    if (lead != 0) move(trace, lead);
  }
}

}  // namespace lockstep::launch
