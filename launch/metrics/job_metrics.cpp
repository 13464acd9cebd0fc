#include "metrics/job_metrics.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "core/utf8_check.hpp"

namespace lockstep::launch {
namespace {

/// Over which the rate of samples is taken.
constexpr std::chrono::seconds kRateTime{15};

using Labels = std::vector<std::pair<std::string, std::string>>;

double in_seconds(net::Clock::duration time) {
  return std::max(0.0, std::chrono::duration<double>(time).count());
}

std::string escaped(const std::string& value) {
  std::string text;
  for (const char letter : utf8_text(value)) {
    if (letter == '\\' || letter == '"') text += '\\';
    text += letter == '\n' ? std::string("\\n") : std::string(1, letter);
  }
  return text;
}

/// Writes families, each with its explanation before its values.
class Page {
 public:
  explicit Page(Labels common) : common_(std::move(common)) {}

  void family(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    text_ += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
  }

  void value(double number, const Labels& labels = {}) {
    std::string list;
    for (const Labels* each : std::initializer_list<const Labels*>{&common_, &labels}) {
      for (const auto& [label, value] : *each)
        list += fmt::format("{}{}=\"{}\"", list.empty() ? "" : ",", label, escaped(value));
    }
    text_ += fmt::format("{}{{{}}} {}\n", name_, list, number);
  }

  std::string take() { return std::move(text_); }

 private:
  Labels common_;
  std::string name_;
  std::string text_;
};

bool is_alive(const RankStatus& rank) { return !rank.status; }

bool waits(const RankStatus& rank) {
  return is_alive(rank) && rank.beat && rank.beat->activity == Activity::waiting;
}

}  // namespace

JobMetrics::JobMetrics(std::string run_id, std::string host, std::string version)
    : run_id_(std::move(run_id)), host_(std::move(host)), version_(std::move(version)) {}

void JobMetrics::begin_round(const Assignment& assignment, int ranks) {
  const std::lock_guard lock(mutex_);
  assignment_ = assignment;
  expected_ = ranks;
  ranks_.clear();
  counted_.clear();
}

void JobMetrics::count_recovery() {
  const std::lock_guard lock(mutex_);
  ++recoveries_;
}

void JobMetrics::see(const std::vector<RankStatus>& ranks, net::Deadline now) {
  const std::lock_guard lock(mutex_);
  ranks_ = ranks;
  seen_ = now;
  for (const auto& rank : ranks_) {
    if (!rank.counters) continue;
    auto& counted = counted_[rank.rank];
    counted.push_back({now, rank.counters->samples});
    while (counted.size() > 2 && now - counted.front().time > kRateTime) counted.pop_front();
  }
}

double JobMetrics::samples_per_second(int rank) const {
  const auto found = counted_.find(rank);
  if (found == counted_.end() || found->second.size() < 2) return 0;
  const auto& [first, last] = std::pair(found->second.front(), found->second.back());
  const double seconds = in_seconds(last.time - first.time);
  return seconds > 0 && last.samples >= first.samples
             ? static_cast<double>(last.samples - first.samples) / seconds
             : 0;
}

std::string JobMetrics::text(net::Deadline now) const {
  const std::lock_guard lock(mutex_);
  Labels common{{"run_id", run_id_}, {"host", host_}};
  if (assignment_) common.emplace_back("node", std::to_string(assignment_->group_rank));
  Page page(std::move(common));

  page.family("lockstep_build_info", "gauge", "Always 1; the version of the launcher is a label.");
  page.value(1, {{"version", version_}});
  page.family("lockstep_world_size", "gauge", "Ranks of the job, on all nodes; 0 before they start.");
  page.value(assignment_ ? assignment_->world_size : 0);
  page.family("lockstep_ranks", "gauge", "Ranks that this node starts.");
  page.value(expected_);
  page.family("lockstep_ranks_alive", "gauge", "Ranks of this node that run.");
  page.value(static_cast<double>(std::ranges::count_if(ranks_, is_alive)));
  page.family("lockstep_rounds_total", "counter", "Starts of all ranks, for whatever reason.");
  page.value(assignment_ ? assignment_->round : 0);
  page.family("lockstep_restarts_total", "counter", "Restarts of all ranks after a failure.");
  page.value(assignment_ ? assignment_->restart_count : 0);
  page.family("lockstep_recoveries_total", "counter",
              "Ranks that were replaced while the others kept running.");
  page.value(recoveries_);

  const auto each_rank = [&](auto&& number) {
    for (const auto& rank : ranks_) {
      const int first = assignment_ ? assignment_->first_rank : 0;
      if (const std::optional<double> value = number(rank))
        page.value(*value,
                   {{"rank", std::to_string(rank.rank)}, {"local_rank", std::to_string(rank.rank - first)}});
    }
  };
  const auto of_beat = [](auto&& number) {
    return [number](const RankStatus& rank) {
      return rank.beat ? std::optional<double>(number(rank)) : std::nullopt;
    };
  };
  // Values grow old between two looks, and while the launcher is busy.
  const double age = in_seconds(now - seen_);
  const auto still = [age](const RankStatus& rank) {
    return std::chrono::duration<double>(rank.still).count() + age;
  };
  page.family("lockstep_rank_up", "gauge", "1 while the rank's process runs, otherwise 0.");
  each_rank([](const RankStatus& rank) { return std::optional<double>(is_alive(rank) ? 1 : 0); });
  page.family("lockstep_rank_heartbeat_age_seconds", "gauge", "Time since the rank's last heartbeat.");
  each_rank(of_beat(still));
  page.family("lockstep_rank_waiting_seconds", "gauge",
              "How long the rank has been waiting for others in its current operation; 0 if it is not.");
  each_rank(of_beat([&still](const RankStatus& rank) { return waits(rank) ? still(rank) : 0; }));
  // No counter: after a restart it goes on from the checkpoint's, which increase() would count once more.
  page.family("lockstep_rank_step", "gauge",
              "Optimizer steps of the training, those before the checkpoint that it continued included.");
  each_rank(of_beat([](const RankStatus& rank) { return static_cast<double>(rank.beat->step); }));
  const auto of_counters = [](auto&& number) {
    return [number](const RankStatus& rank) {
      return rank.counters ? std::optional<double>(number(rank)) : std::nullopt;
    };
  };
  page.family("lockstep_rank_waited_seconds_total", "counter",
              "Time in which the rank's threads waited for others: collectives, messages and barriers.");
  each_rank(
      of_counters([](const RankStatus& rank) { return static_cast<double>(rank.counters->waited) / 1e9; }));
  page.family("lockstep_rank_samples_total", "counter",
              "Samples that the rank's process got from its data loaders.");
  each_rank(of_counters([](const RankStatus& rank) { return static_cast<double>(rank.counters->samples); }));
  page.family("lockstep_rank_samples_per_second", "gauge", "The same per second, over the last 15 s.");
  each_rank(of_counters([this](const RankStatus& rank) { return samples_per_second(rank.rank); }));
  return page.take();
}

}  // namespace lockstep::launch
