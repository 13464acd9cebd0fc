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
                          .num_warmup_steps = given.value("warmup_steps", std::int64_t{0}),
                          .num_training_steps = given.value("training_steps", std::int64_t{0}),
                          .power = given.value("power", 1.0),
                          .num_decay_steps = given.value("decay_steps", std::int64_t{0}),
                          .warmup_type = given.value("warmup_type", "linear"),
                          .decay_type = given.value("decay_type", "cosine")};
  take(given, "num_cycles", options.num_cycles);
  take(given, "warmup_lr_rate", options.warmup_lr_rate);
  take(given, "timescale", options.timescale);
  take(given, "stable_steps", options.num_stable_steps);
  // The goldens' file has shares of the full rate only.
  if (given.contains("end_lr_rate")) options.lr_end = kFullRate * given["end_lr_rate"].get<double>();
  if (options.name == "warmup_stable_decay") {
    options.min_lr_ratio = given.value("min_lr_rate", 0.0);
  } else {
    take(given, "min_lr_rate", options.min_lr_rate);
  }
  return options;
}

/// Over whole runs and beyond their ends, to the last bits.
TEST(Schedules, AreThoseOfTransformers) {
  int cases = 0;
  for (const auto& golden : testing::schedule_goldens()) {
    if (golden.options.contains("plateau")) continue;
    const Schedule schedule = make_schedule(options_from(golden.options), kFullRate);
    for (std::size_t step = 0; step < golden.rates.size(); ++step) {
      EXPECT_NEAR(kFullRate * schedule(static_cast<std::int64_t>(step)), golden.rates[step], 1e-16)
          << golden.text << " at step " << step;
    }
    ++cases;
  }
  EXPECT_EQ(cases, 53);
}

/// As rates where transformers has rates, and as shares where it has shares.
TEST(Schedules, LowestRatesAreRatesOrShares) {
  const auto last = [](ScheduleOptions options, double lr) {
    options.num_training_steps = 10;
    return lr * make_schedule(options, lr)(10);
  };
  EXPECT_DOUBLE_EQ(last({.name = "cosine_with_min_lr", .min_lr = 0.01}, 0.2), 0.01);
  EXPECT_DOUBLE_EQ(last({.name = "cosine_with_min_lr", .min_lr_rate = 0.25}, 0.2), 0.05);
  EXPECT_DOUBLE_EQ(last({.name = "polynomial", .lr_end = 0.03}, 0.2), 0.03);
  EXPECT_DOUBLE_EQ(last({.name = "warmup_stable_decay", .num_decay_steps = 4, .min_lr_ratio = 0.5}, 0.2),
                   0.1);
  EXPECT_EQ(last({.name = "polynomial"}, 0), 0);
  // To the last bit transformers' number.
  const ScheduleOptions bits{
      .name = "polynomial", .num_warmup_steps = 6, .num_training_steps = 10, .lr_end = 1e-7};
  EXPECT_EQ(1e-3 * make_schedule(bits, 1e-3)(8), 0.0005000499999999999);
}

TEST(Schedules, RestartsNeedNotBeWhole) {
  const auto schedule =
      make_schedule({.name = "cosine_with_restarts", .num_training_steps = 10, .num_cycles = 2.5});
  EXPECT_NEAR(schedule(5), 0.8535533905932737, 1e-15);  // transformers' number.
}

TEST(Schedules, ATrainingMayEndInItsWarmup) {
  const auto schedule =
      make_schedule({.name = "polynomial", .num_warmup_steps = 5, .num_training_steps = 3, .lr_end = 0.1});
  EXPECT_EQ(schedule(3), 0.6);
  EXPECT_EQ(schedule(5), 0.1);
}

TEST(Schedules, RefuseWhatMakesNoSense) {
  EXPECT_THROWS(make_schedule({.name = "cosin"}), UsageError, "'cosin'", "cosine_with_restarts", "Plateau");
  EXPECT_THROWS(make_schedule({.name = "linear"}), UsageError, "num_training_steps");
  ScheduleOptions options{.name = "linear", .num_warmup_steps = -1, .num_training_steps = 3};
  EXPECT_THROWS(make_schedule(options), UsageError, "num_warmup_steps");
  options = {.name = "warmup_stable_decay", .num_decay_steps = 4};
  EXPECT_THROWS(make_schedule(options), UsageError, "num_training_steps");
  options = {
      .name = "warmup_stable_decay", .num_training_steps = 9, .num_decay_steps = 4, .decay_type = "log"};
  EXPECT_THROWS(make_schedule(options), UsageError, "1-sqrt");
  options = {.name = "polynomial", .num_warmup_steps = 3, .num_training_steps = 3};
  EXPECT_THROWS(make_schedule(options), UsageError, "more than num_warmup_steps");
  options = {.name = "polynomial", .num_training_steps = 3, .lr_end = 0.5};
  EXPECT_THROWS(make_schedule(options, 0.25), UsageError, "lr_end is 0.5", "0.25");
  options = {.name = "cosine_with_min_lr", .num_training_steps = 3, .min_lr = 0.5, .min_lr_rate = 0.5};
  EXPECT_THROWS(make_schedule(options), UsageError, "min_lr and min_lr_rate");
  PlateauOptions plateau{.mode = "best"};
  EXPECT_THROWS(PlateauRule{plateau}, UsageError, "'best'");
  plateau = {.factor = 1};
  EXPECT_THROWS(PlateauRule{plateau}, UsageError, "factor");
}

}  // namespace
}  // namespace lockstep::optim
