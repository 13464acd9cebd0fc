#include "core/runtime/spent_time.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "core/runtime/rank_counters.hpp"

namespace lockstep {
namespace {

struct Part {
  std::string name;
  std::int64_t nanoseconds = 0;
};

struct OpenPart {
  const void* owner = nullptr;
  std::size_t part = 0;
};

bool takes_all_within(std::string_view name) { return name == "evaluation" || name == "checkpoint"; }

std::int64_t now_in_nanoseconds() noexcept {
  const std::chrono::nanoseconds now = std::chrono::steady_clock::now().time_since_epoch();
  return now.count();
}

/// Time is charged to the innermost part whenever that changes.
class ThreadAccount {
 public:
  void begin(const void* owner, std::string_view name) {
    charge();
    const bool is_within = !open_.empty() && takes_all_within(parts_[open_.back().part].name);
    open_.push_back({owner, is_within ? open_.back().part : place_of(name)});
  }

  void end(const void* owner) {
    const auto found = std::ranges::find(open_, owner, &OpenPart::owner);
    if (found == open_.end()) return;
    charge();
    open_.erase(found, open_.end());
  }

  std::map<std::string, double> seconds() {
    charge();
    std::map<std::string, double> found{{"communication", static_cast<double>(thread_waited()) / 1e9}};
    for (const auto& part : parts_) found[part.name] += static_cast<double>(part.nanoseconds) / 1e9;
    return found;
  }

 private:
  std::size_t place_of(std::string_view name) {
    // Names may be made for each step.
    constexpr std::size_t kMostParts = 64;
    constexpr std::string_view kOthers = "other ranges";
    const auto found = std::ranges::find(parts_, name, &Part::name);
    const auto place = static_cast<std::size_t>(found - parts_.begin());
    if (found != parts_.end()) return place;
    if (place >= kMostParts && name != kOthers) return place_of(kOthers);
    parts_.push_back({std::string(name), 0});
    return place;
  }

  void charge() {
    const auto now = now_in_nanoseconds();
    const auto waited = thread_waited();
    if (!open_.empty()) parts_[open_.back().part].nanoseconds += now - since_ - (waited - waited_);
    since_ = now;
    waited_ = waited;
  }

  std::vector<Part> parts_;
  std::vector<OpenPart> open_;
  std::int64_t since_ = 0, waited_ = 0;
};

ThreadAccount& account() {
  thread_local ThreadAccount own;
  return own;
}

}  // namespace

void begin_part(const void* owner, std::string_view name) noexcept { account().begin(owner, name); }

void end_part(const void* owner) noexcept { account().end(owner); }

std::map<std::string, double> spent_time() { return account().seconds(); }

}  // namespace lockstep
