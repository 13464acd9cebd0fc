#include "trace/chrome_trace.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

namespace lockstep::launch {
namespace {

using nlohmann::json;

constexpr int kWaitLane = 1;
constexpr int kFirstCommunicationLane = 100;
constexpr std::size_t kMostLanes = 16;

/// Events of Chrome's format. Times are in microseconds since the first event.
struct Events {
  std::int64_t origin;
  json list = json::array();

  void name(int rank, long lane, const std::string& kind, const std::string& text) {
    list.push_back({{"ph", "M"}, {"pid", rank}, {"tid", lane}, {"name", kind}, {"args", {{"name", text}}}});
  }
  void add(int rank, long lane, const std::string& text, std::int64_t begin, std::int64_t end, json facts) {
    list.push_back({{"ph", "X"},
                    {"pid", rank},
                    {"tid", lane},
                    {"name", text},
                    {"ts", static_cast<double>(begin - origin) / 1e3},
                    {"dur", static_cast<double>(end - begin) / 1e3},
                    {"args", std::move(facts)}});
  }
};

std::int64_t origin_of(const std::vector<RankTrace>& traces) {
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  for (const auto& trace : traces) {
    for (const auto& operation : trace.operations) first = std::min(first, operation.begin);
    for (const auto& span : trace.spans) first = std::min(first, span.begin);
  }
  return first;
}

/// The latest known time; unfinished operations are drawn up to it.
std::int64_t end_of(const RankTrace& trace) {
  std::int64_t last = 0;
  for (const auto& operation : trace.operations) last = std::max({last, operation.begin, operation.end});
  for (const auto& span : trace.spans) last = std::max(last, span.end);
  return last;
}

/// The first lane that is free at `begin`.
std::size_t lane_for(std::vector<std::int64_t>& lanes, std::int64_t begin, std::int64_t end) {
  const auto free = std::ranges::find_if(lanes, [&](auto busy_until) { return busy_until <= begin; });
  const auto lane = static_cast<std::size_t>(free - lanes.begin());
  if (lane == lanes.size() && lane < kMostLanes) lanes.push_back(0);
  const std::size_t taken = std::min(lane, lanes.size() - 1);
  lanes[taken] = end;
  return taken;
}

void add_operations(Events& events, const RankTrace& trace) {
  std::vector<std::int64_t> lanes;
  const std::int64_t last = end_of(trace);
  for (const auto& operation : trace.operations) {
    const std::int64_t end = operation.end == 0 ? last : operation.end;
    const auto lane = kFirstCommunicationLane + static_cast<int>(lane_for(lanes, operation.begin, end));
    events.add(trace.rank, lane, operation.text(), operation.begin, end,
               {{"group", operation.group}, {"state", operation.state}, {"what", operation.fingerprint}});
  }
  for (std::size_t lane = 0; lane < lanes.size(); ++lane)
    events.name(trace.rank, kFirstCommunicationLane + static_cast<int>(lane), "thread_name", "communication");
}

void add_spans(Events& events, const RankTrace& trace) {
  std::set<long> threads;
  for (const auto& span : trace.spans) {
    events.add(trace.rank, span.thread, span.name, span.begin, span.end, json::object());
    threads.insert(span.thread);
  }
  for (const long thread : threads)
    events.name(trace.rank, thread, "thread_name", fmt::format("compute, thread {}", thread));
}

void add_waits(Events& events, const std::vector<MergedCollective>& merged) {
  for (const auto& collective : merged) {
    if (!collective.is_complete()) continue;
    const std::int64_t last = collective.arrivals().second;
    for (const auto& [rank, operation] : collective.by_rank) {
      if (operation->begin < last)
        events.add(rank, kWaitLane, "wait for the last rank", operation->begin, last,
                   {{"operation", operation->text()}});
    }
  }
}

}  // namespace

json chrome_trace(const std::vector<RankTrace>& traces, const std::vector<MergedCollective>& merged) {
  Events events{origin_of(traces)};
  for (const auto& trace : traces) {
    events.name(trace.rank, 0, "process_name", fmt::format("rank {} on {}", trace.rank, trace.host));
    events.name(trace.rank, kWaitLane, "thread_name", "wait");
    add_operations(events, trace);
    add_spans(events, trace);
  }
  add_waits(events, merged);
  return {{"traceEvents", std::move(events.list)}, {"displayTimeUnit", "ms"}};
}

}  // namespace lockstep::launch
