// Three ranks at a barrier, over a store in memory and with a clock that is moved by hand: every action of
// each rank in every order, and what each rank then says at which millisecond.

#include <gtest/gtest.h>

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "coordination/barrier.hpp"
#include "lockstep/core/error.hpp"
#include "simulated_ranks.hpp"

namespace lockstep::coordination {
namespace {

using testing::SimulatedRanks;

constexpr int kRanks = 3;
constexpr Milliseconds kTimeout{60'000};
constexpr Milliseconds kLook = WaitTimes{}.look;
constexpr Milliseconds kFarewell = WaitTimes{}.farewell;

enum class Action { arrives, arrives_and_dies, fails, dies, leaves };
constexpr std::array kActions = {Action::arrives, Action::arrives_and_dies, Action::fails, Action::dies,
                                 Action::leaves};
constexpr std::array kNames = {"arrives", "arrives and dies", "fails", "dies", "leaves"};

struct Plan {
  Action action = Action::arrives;
  Milliseconds at{0};
};
using Scenario = std::array<Plan, kRanks>;

/// What a rank says at its end, and when.
struct Outcome {
  std::string text;
  Milliseconds at{0};
  bool operator==(const Outcome&) const = default;
};
void PrintTo(const Outcome& outcome, std::ostream* out) {
  *out << fmt::format("'{}' after {} ms", outcome.text, outcome.at.count());
}
using Outcomes = std::array<Outcome, kRanks>;

std::string failure_text(int rank) { return fmt::format("rank {} has no data", rank); }

// ---- What happens

class Job {
 public:
  explicit Job(const Scenario& scenario) : scenario_(scenario) {}

  Outcomes run() {
    ranks_.run([this](int rank) {
      ranks_.sleep_until(rank, plan(rank).at);
      std::string text;
      try {
        text = act(rank);
      } catch (const Error& error) {
        text = error.what();
      }
      outcomes_[static_cast<std::size_t>(rank)] = {text, ranks_.time()};
    });
    return outcomes_;
  }

 private:
  const Plan& plan(int rank) const { return scenario_.at(static_cast<std::size_t>(rank)); }

  /// As a program's named barriers do it: a look at the failures, then the barrier with a probe.
  std::string act(int rank) {
    const RankSession session(ranks_.store(rank), "job/", GroupInfo::whole(rank, kRanks), {},
                              [this] { return ranks_.now(); });
    const auto check = [&] {
      if (const auto failure = session.read_failure())
        throw RemoteError(fmt::format("rank {} failed: {}", failure->rank, failure->text), failure->rank);
    };
    switch (plan(rank).action) {
      case Action::fails:
        session.post_failure(failure_text(rank));
        session.stay_until_read();
        return "failed";
      case Action::arrives_and_dies:
        check();
        session.arrive("barrier/1");
        return "dead";
      case Action::arrives: {
        check();
        Barrier barrier(session);
        barrier.arrive_and_wait(
            kTimeout,
            [&](const std::vector<int>& missing, Milliseconds) {
              check();
              return gone_among(missing);
            },
            kLook);
        return "passed";
      }
      case Action::dies:
        return "dead";
      case Action::leaves:
        return "left";
    }
    return "";
  }

  /// As the monitors of processes find out.
  std::string gone_among(const std::vector<int>& missing) const {
    for (const int rank : missing) {
      if (plan(rank).action != Action::arrives && plan(rank).action != Action::fails &&
          plan(rank).at <= ranks_.time())
        return fmt::format("rank {} is gone", rank);
    }
    return "";
  }

  Scenario scenario_;
  SimulatedRanks ranks_{kRanks};
  Outcomes outcomes_;
};

// ---- What should happen, said without the protocol

class Expectation {
 public:
  explicit Expectation(const Scenario& scenario) : scenario_(scenario) {}

  Outcomes outcomes() const {
    Outcomes result;
    for (int rank = 0; rank < kRanks; ++rank) result[static_cast<std::size_t>(rank)] = outcome(rank);
    return result;
  }

 private:
  const Plan& plan(int rank) const { return scenario_.at(static_cast<std::size_t>(rank)); }
  Milliseconds at(int rank) const { return plan(rank).at; }
  bool registers(int rank) const {
    return plan(rank).action == Action::arrives || plan(rank).action == Action::arrives_and_dies;
  }

  Outcome outcome(int rank) const {
    switch (plan(rank).action) {
      case Action::dies:
        return {"dead", at(rank)};
      case Action::leaves:
        return {"left", at(rank)};
      case Action::fails:
        return {"failed", end_of_failed(rank)};
      case Action::arrives_and_dies:
        return reads_on_arrival(rank) ? failed_by(first_failure(), at(rank)) : Outcome{"dead", at(rank)};
      case Action::arrives:
        return of_arriving(rank);
    }
    return {};
  }

  /// The rank that fails first, or -1.
  int first_failure() const {
    int first = -1;
    for (int rank = 0; rank < kRanks; ++rank) {
      if (plan(rank).action == Action::fails && (first < 0 || at(rank) < at(first))) first = rank;
    }
    return first;
  }
  bool reads_on_arrival(int rank) const { return first_failure() >= 0 && at(first_failure()) < at(rank); }
  static Outcome failed_by(int rank, Milliseconds when) {
    return {fmt::format("rank {} failed: {}", rank, failure_text(rank)), when};
  }

  /// The first look of a waiting rank at or after `event`.
  Milliseconds look_of(int rank, Milliseconds event) const {
    Milliseconds look = at(rank) + kLook;
    while (look < event) look += kLook;
    return look;
  }

  Outcome of_arriving(int rank) const {
    if (reads_on_arrival(rank)) return failed_by(first_failure(), at(rank));
    // The first event that ends the wait: a failure, or a rank that will never arrive.
    std::optional<Milliseconds> event;
    Milliseconds last{0};
    for (int other = 0; other < kRanks; ++other) {
      last = std::max(last, at(other));
      if (!registers(other)) event = std::min(event.value_or(at(other)), at(other));
    }
    if (!event) return {"passed", last + extra_look(rank)};
    const Milliseconds look = look_of(rank, *event);
    if (first_failure() >= 0 && at(first_failure()) <= look) return failed_by(first_failure(), look);
    for (int other = 0; other < kRanks; ++other) {
      if (!registers(other) && plan(other).action != Action::fails && at(other) <= look)
        return {fmt::format("rank {} of {}: barrier #1 failed: rank {} is gone", rank, kRanks, other), look};
    }
    return {"?", look};
  }

  /// Rank 0 leaves last; it looks once whether those that have arrived still live.
  Milliseconds extra_look(int rank) const {
    if (rank != 0) return Milliseconds(0);
    const bool all_live = plan(1).action == Action::arrives && plan(2).action == Action::arrives;
    return all_live ? Milliseconds(0) : kLook;
  }

  /// When both others have read the first failure, or have failed themselves; at most the farewell later.
  Milliseconds end_of_failed(int rank) const {
    Milliseconds all_read = at(rank);
    for (int other = 0; other < kRanks; ++other) {
      if (other == first_failure()) continue;
      if (const auto read = reads_at(other))
        all_read = std::max(all_read, *read);
      else
        return at(rank) + kFarewell;
    }
    return std::min(all_read, at(rank) + kFarewell);
  }

  /// When a rank reads the first failure, if ever.
  std::optional<Milliseconds> reads_at(int rank) const {
    if (plan(rank).action == Action::fails) return at(rank);
    if (!registers(rank)) return std::nullopt;
    if (reads_on_arrival(rank)) return at(rank);
    if (plan(rank).action != Action::arrives) return std::nullopt;
    const Outcome outcome = of_arriving(rank);
    return outcome == failed_by(first_failure(), outcome.at) ? std::optional(outcome.at) : std::nullopt;
  }

  Scenario scenario_;
};

std::string text_of(const Scenario& scenario) {
  std::string text;
  for (int rank = 0; rank < kRanks; ++rank) {
    const Plan& plan = scenario[static_cast<std::size_t>(rank)];
    text += fmt::format("rank {} {} at {} ms; ", rank, kNames[static_cast<std::size_t>(plan.action)],
                        plan.at.count());
  }
  return text;
}

/// Distances of the actions in time: within the others' farewell, and far beyond it. No action falls on a
/// look.
class RankSessionModel : public ::testing::TestWithParam<int> {};

TEST_P(RankSessionModel, EveryRankEndsAsAndWhenItShould) {
  int scenarios = 0;
  std::array<int, kRanks> order = {0, 1, 2};
  do {
    for (std::size_t code = 0; code < kActions.size() * kActions.size() * kActions.size(); ++code) {
      Scenario scenario;
      std::size_t rest = code;
      for (std::size_t rank = 0; rank < kRanks; ++rank, rest /= kActions.size())
        scenario[rank] = {kActions.at(rest % kActions.size()), Milliseconds(GetParam() * (1 + order[rank]))};
      EXPECT_EQ(Job(scenario).run(), Expectation(scenario).outcomes()) << text_of(scenario);
      ++scenarios;
    }
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(scenarios, 6 * 125);
}

INSTANTIATE_TEST_SUITE_P(Distances, RankSessionModel, ::testing::Values(2'300, 10'300));

TEST(RankSession, ATimeoutNamesWhoIsMissing) {
  SimulatedRanks ranks(kRanks);
  std::array<std::string, kRanks> said;
  ranks.run([&](int rank) {
    if (rank == 1) return;
    const RankSession session(ranks.store(rank), "job/", GroupInfo::whole(rank, kRanks), {},
                              [&] { return ranks.now(); });
    try {
      Barrier(session).arrive_and_wait(kTimeout);
    } catch (const TimeoutError& error) {
      said[static_cast<std::size_t>(rank)] = error.what();
    }
  });
  EXPECT_EQ(ranks.time(), kTimeout);
  for (const int rank : {0, 2}) {
    EXPECT_EQ(
        said[static_cast<std::size_t>(rank)],
        fmt::format("rank {} of 3: barrier #1 timed out after 60000 ms: rank 1 did not arrive. See what "
                    "that rank did last: it may be slow, stuck or dead, or it may never call the barrier",
                    rank));
  }
}

TEST(RankSession, AReleasedPointLetsAllPassThatWaitOrComeLater) {
  SimulatedRanks ranks(kRanks);
  std::array<Milliseconds, kRanks> passed;
  ranks.run([&](int rank) {
    const RankSession session(ranks.store(rank), "job/", GroupInfo::whole(rank, kRanks), {},
                              [&] { return ranks.now(); });
    ranks.sleep_until(rank, Milliseconds(1'000) * rank);
    if (rank == 1) session.release("ready");
    EXPECT_TRUE(session.await("ready", {}));
    passed[static_cast<std::size_t>(rank)] = ranks.time();
  });
  EXPECT_EQ(passed, (std::array{Milliseconds(1'000), Milliseconds(1'000), Milliseconds(2'000)}));
}

}  // namespace
}  // namespace lockstep::coordination
