#include "lockstep/optim/schedules.hpp"

#include <gtest/gtest.h>

#include "lockstep/core/error.hpp"
#include "support/throws.hpp"
#include "unit/optim/schedules_goldens.hpp"

namespace lockstep::optim {
namespace {

using nlohmann::json;

constexpr double kFullRate = 0.5;

template <class Value>
void take(const json& options, const char* name, std::optional<Value>& field) {
  if (options.contains(name)) field = options[name].get<Value>();
}

ScheduleOptions options_from(const json& given) {
  ScheduleOptions options{.name = given["name"],
                          .warmup_steps = given.value("warmup_steps", std::int64_t{0}),
                          .training_steps = given.value("training_steps", std::int64_t{0}),
                          .min_lr_rate = given.value("min_lr_rate", 0.0),
                          .end_lr_rate = given.value("end_lr_rate", 1e-7),
                          .power = given.value("power", 1.0),
                          .decay_steps = given.value("decay_steps", std::int64_t{0}),
                          .warmup_type = given.value("warmup_type", "linear"),
                          .decay_type = given.value("decay_type", "cosine")};
  take(given, "num_cycles", options.num_cycles);
  take(given, "warmup_lr_rate", options.warmup_lr_rate);
  take(given, "timescale", options.timescale);
  take(given, "stable_steps", options.stable_steps);
  return options;
}

/// Over whole runs and beyond their ends, to the last bits.
TEST(Schedules, AreThoseOfTransformers) {
  int cases = 0;
  for (const auto& golden : testing::schedule_goldens()) {
    if (golden.options.contains("plateau")) continue;
    const Schedule schedule = make_schedule(options_from(golden.options));
    for (std::size_t step = 0; step < golden.rates.size(); ++step) {
      EXPECT_NEAR(kFullRate * schedule(static_cast<std::int64_t>(step)), golden.rates[step], 1e-16)
          << golden.text << " at step " << step;
    }
    ++cases;
  }
  EXPECT_EQ(cases, 52);
}

TEST(Schedules, RefuseWhatMakesNoSense) {
  EXPECT_THROWS(make_schedule({.name = "cosin"}), UsageError, "'cosin'", "cosine_with_restarts", "Plateau");
  EXPECT_THROWS(make_schedule({.name = "linear"}), UsageError, "training_steps");
  ScheduleOptions options{.name = "linear", .warmup_steps = -1, .training_steps = 3};
  EXPECT_THROWS(make_schedule(options), UsageError, "warmup_steps");
  options = {.name = "warmup_stable_decay", .training_steps = 3, .decay_steps = 4};
  EXPECT_THROWS(make_schedule(options), UsageError, "decay_steps");
  options = {.name = "warmup_stable_decay", .training_steps = 9, .decay_steps = 4, .decay_type = "log"};
  EXPECT_THROWS(make_schedule(options), UsageError, "1-sqrt");
  options = {.name = "polynomial", .warmup_steps = 3, .training_steps = 3};
  EXPECT_THROWS(make_schedule(options), UsageError, "more than warmup_steps");
  PlateauOptions plateau{.mode = "best"};
  EXPECT_THROWS(PlateauRule{plateau}, UsageError, "'best'");
  plateau = {.factor = 1};
  EXPECT_THROWS(PlateauRule{plateau}, UsageError, "factor");
}

}  // namespace
}  // namespace lockstep::optim
