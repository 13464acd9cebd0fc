// What a resumed training logs and calls at the end of an epoch: the same as one that was never interrupted.

#include <algorithm>
#include <filesystem>
#include <utility>

#include "lockstep/train/callbacks.hpp"
#include "unit/train/small_trainings.hpp"

namespace lockstep {
namespace {

using testing::arguments;
using testing::expect_same;
using testing::Outcome;
using testing::samples;
using testing::small_model;
using testing::StopAt;
using testing::TemporaryFolder;
using testing::train_on;
using testing::train_plainly;

using EventNames = std::vector<std::string>;

/// Records on rank 0 what is called after steps, with the values of the log.
class EventRecorder final : public TrainerCallback {
 public:
  explicit EventRecorder(EventNames& events) : events_(&events) {}

  void on_step_end(CallbackContext& event) override { add(event, "step_end"); }
  void on_epoch_end(CallbackContext& event) override { add(event, "epoch_end"); }
  void on_evaluate(CallbackContext& event) override { add(event, "evaluate"); }
  void on_log(CallbackContext& event) override {
    add(event, "log");
    for (const auto& [name, value] : event.values) {
      const bool of_run = name.starts_with("train_") || name.ends_with("_per_second");
      if (!of_run && !name.ends_with("_runtime")) add(event, name + " = " + std::to_string(value));
    }
  }

 private:
  void add(const CallbackContext& event, const std::string& what) {
    if (event.state.is_world_process_zero)
      events_->push_back(std::to_string(event.state.global_step) + ": " + what);
  }

  EventNames* events_;
};

/// Ends the epoch after a step.
class EndsEpochAfter final : public TrainerCallback {
 public:
  explicit EndsEpochAfter(std::int64_t step) : step_(step) {}
  void on_step_end(CallbackContext& event) override {
    if (event.state.global_step == step_) event.control.should_epoch_stop = true;
  }

 private:
  std::int64_t step_;
};

/// Ends the training after the evaluation of a step.
class EndsTrainingAt final : public TrainerCallback {
 public:
  explicit EndsTrainingAt(std::int64_t step) : step_(step) {}
  void on_evaluate(CallbackContext& event) override {
    if (event.state.global_step == step_) event.control.should_training_stop = true;
  }

 private:
  std::int64_t step_;
};

/// Requests a stop in the first batch of an evaluation after a step.
class StopInEvaluationOf final : public TrainerCallback {
 public:
  explicit StopInEvaluationOf(std::int64_t step) : step_(step) {}
  void on_prediction_step(CallbackContext& event) override {
    if (event.state.global_step == step_) event.trainer.accelerator().request_stop();
  }

 private:
  std::int64_t step_;
};

/// A step's loss is a third of a sum, so that a sum of losses depends on its order.
TEST(Resumed, LogsTheSameBits) {
  for (const std::int64_t stop_at : {1, 2, 3, 4}) {
    const TemporaryFolder folder;
    TrainingArguments args = arguments(folder);
    args.gradient_accumulation_steps = 3, args.logging_steps = 5;
    const auto whole = train_plainly(1, args).logged("loss");
    args.output_dir = folder / "parts";
    EXPECT_TRUE(train_plainly(1, args, stop_at).output.preempted);
    EXPECT_EQ(train_plainly(1, args).logged("loss"), whole) << stop_at;
  }
}

using SharedCallback = std::shared_ptr<TrainerCallback>;

class EndOfEpoch : public ::testing::TestWithParam<int> {
 protected:
  /// Each of the 3 epochs has 6 steps on one rank, 3 on two.
  std::int64_t steps_per_epoch() const { return GetParam() == 1 ? 6 : 3; }

  /// Compares a training with one that `stop` interrupts and that is resumed. Both have `callback`.
  void expect_same_end(TrainingArguments args, const SharedCallback& stop,
                       const SharedCallback& callback = nullptr) {
    const TemporaryFolder folder;
    EventNames events;
    const auto train = [&](const std::string& name, const SharedCallback& signal) {
      args.output_dir = folder / name;
      return train_on(GetParam(), args, [&](const Accelerator& accelerator) {
        TrainerComponents parts{
            .model = small_model(), .train_dataset = samples(44), .eval_dataset = samples(19)};
        if (callback) parts.callbacks.push_back(callback);
        parts.callbacks.push_back(std::make_shared<EventRecorder>(events));
        if (signal && accelerator.is_main_process()) parts.callbacks.push_back(signal);
        return parts;
      });
    };
    const Outcome whole = train("whole", nullptr);
    const EventNames wanted = std::exchange(events, {});
    ASSERT_TRUE(train("parts", stop).output.preempted);
    EXPECT_LT(events.size(), wanted.size());
    const Outcome resumed = train("parts", nullptr);
    EXPECT_FALSE(resumed.output.preempted);
    EXPECT_EQ(events, wanted);
    expect_same(whole, resumed);
    for (const auto& name : {"whole", "parts"}) {
      const auto last = std::filesystem::path(folder / name) / checkpoint_name(whole.output.global_step);
      EXPECT_EQ(std::filesystem::exists(last), args.save_strategy == SaveStrategy::epoch) << last;
    }
    if (whole.output.global_step < whole.state.max_steps) return;
    // Nothing is left to do.
    events.clear();
    train("parts", nullptr);
    EXPECT_EQ(std::count_if(events.begin(), events.end(),
                            [](const auto& event) { return event.ends_with("epoch_end"); }),
              0);
  }

  TrainingArguments by_epoch() const {
    TrainingArguments args = arguments(TemporaryFolder());
    args.logging_strategy = args.eval_strategy = IntervalStrategy::epoch;
    args.save_strategy = SaveStrategy::epoch;
    return args;
  }

  TrainingArguments by_epoch_with_evaluations_by_step() const {
    TrainingArguments args = by_epoch();
    args.eval_strategy = IntervalStrategy::steps;
    args.eval_steps = 2;
    return args;
  }
};

INSTANTIATE_TEST_SUITE_P(Ranks, EndOfEpoch, ::testing::Values(1, 2));

TEST_P(EndOfEpoch, LogsTheStepBeforeTheStop) {
  expect_same_end(by_epoch(), std::make_shared<StopAt>(steps_per_epoch()));
}

TEST_P(EndOfEpoch, FollowsTheEvaluationOfItsLastStep) {
  TrainingArguments args = by_epoch_with_evaluations_by_step();
  args.eval_steps = steps_per_epoch();
  expect_same_end(args, std::make_shared<StopInEvaluationOf>(steps_per_epoch()));
}

TEST_P(EndOfEpoch, FollowsTheEvaluationOfTheFinalStep) {
  const TrainingArguments args = by_epoch_with_evaluations_by_step();
  expect_same_end(args, std::make_shared<StopInEvaluationOf>(3 * steps_per_epoch()));
}

TEST_P(EndOfEpoch, FollowsTheEvaluationOfAFinalStepWithinIt) {
  TrainingArguments args = by_epoch_with_evaluations_by_step();
  args.max_steps = 2;
  expect_same_end(args, std::make_shared<StopInEvaluationOf>(2));
}

TEST_P(EndOfEpoch, IsWhereACallbackEndsTheTraining) {
  expect_same_end(by_epoch_with_evaluations_by_step(), std::make_shared<StopInEvaluationOf>(2),
                  std::make_shared<EndsTrainingAt>(2));
}

TEST_P(EndOfEpoch, IsWhereACallbackEndsIt) {
  const auto ends = std::make_shared<EndsEpochAfter>(2);
  expect_same_end(by_epoch_with_evaluations_by_step(), std::make_shared<StopInEvaluationOf>(2), ends);
}

TEST_P(EndOfEpoch, IsWhereACallbackEndsItInTheStepOfTheStop) {
  expect_same_end(by_epoch(), std::make_shared<StopAt>(2), std::make_shared<EndsEpochAfter>(2));
}

TEST_P(EndOfEpoch, HasItsOwnEvaluationInterrupted) {
  expect_same_end(by_epoch(), std::make_shared<StopInEvaluationOf>(steps_per_epoch()));
  expect_same_end(by_epoch(), std::make_shared<StopInEvaluationOf>(3 * steps_per_epoch()));
}

TEST_P(EndOfEpoch, IsNotRepeatedWhenATrainingIsExtended) {
  const TemporaryFolder folder;
  TrainingArguments args = by_epoch();
  args.lr_scheduler_type = "constant";
  EventNames events;
  const auto train = [&](const std::string& name, double epochs) {
    args.output_dir = folder / name;
    args.num_train_epochs = epochs;
    return train_on(GetParam(), args, [&](const Accelerator&) {
      return TrainerComponents{.model = small_model(),
                               .train_dataset = samples(44),
                               .eval_dataset = samples(19),
                               .callbacks = {std::make_shared<EventRecorder>(events)}};
    });
  };
  const auto without_totals = [&] {
    EventNames list = std::exchange(events, {});
    // The run's totals, which are logged at its end: total_flos and epoch.
    list.resize(list.size() - 3);
    return list;
  };
  const Outcome whole = train("whole", 3);
  const EventNames wanted = without_totals();
  train("parts", 2);
  EventNames extended = without_totals();
  expect_same(whole, train("parts", 3));
  const EventNames rest = without_totals();
  extended.insert(extended.end(), rest.begin(), rest.end());
  EXPECT_EQ(extended, wanted);
}

}  // namespace
}  // namespace lockstep
