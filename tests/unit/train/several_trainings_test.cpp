// Several trainings in one process: one after another or side by side, with one Accelerator or one each.

#include <netinet/in.h>
#include <sys/socket.h>
#include <torch/optim.h>
#include <torch/serialize.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/optim/adam.hpp"
#include "support/throws.hpp"
#include "unit/train/small_trainings.hpp"

namespace lockstep {
namespace {

using testing::arguments;
using testing::expect_same;
using testing::Outcome;
using testing::outcome_of;
using testing::plain_parts;
using testing::run_accelerators;
using testing::samples;
using testing::small_model;
using testing::TemporaryFolder;
using testing::train_plainly;

/// The best evaluation is the one whose loss is the greatest: the first one. Loading it undoes the rest.
TrainingArguments best_at_end(const TemporaryFolder& folder, const std::string& name) {
  TrainingArguments args = arguments(folder);
  args.output_dir = folder / name;
  args.eval_strategy = IntervalStrategy::epoch, args.save_strategy = SaveStrategy::epoch;
  args.metric_for_best_model = "loss", args.greater_is_better = true;
  args.load_best_model_at_end = true;
  return args;
}

class SeveralTrainings : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, SeveralTrainings, ::testing::Values(1, 2));

/// Of the program: without accumulation.
AcceleratorOptions shared_options(const TemporaryFolder& folder) {
  AcceleratorOptions options = accelerator_options(arguments(folder));
  options.gradient_accumulation_steps = 1;
  return options;
}

std::vector<std::string> files_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

/// The folds of a cross-validation: each Trainer is gone before the next one saves.
TEST_P(SeveralTrainings, OfDestroyedTrainersLeaveNothingBehind) {
  const TemporaryFolder folder;
  const Outcome alone = train_plainly(GetParam(), best_at_end(folder, "alone"));
  const auto step = std::to_string(alone.output.global_step);
  const auto files = files_in(folder / ("alone/checkpoint-" + step));
  run_accelerators(
      GetParam(),
      [&](const Accelerator& accelerator) {
        for (const auto* fold : {"one", "two", "three"}) {
          Trainer trainer(accelerator, best_at_end(folder, fold), plain_parts());
          const Outcome outcome = outcome_of(trainer, trainer.train());
          expect_same(outcome, alone);
          EXPECT_EQ(files_in(folder / (std::string(fold) + "/checkpoint-" + step)), files);
        }
        // Nothing but what the program has prepared itself.
        accelerator.save_state(folder / "rest");
        EXPECT_FALSE(std::filesystem::exists(folder / "rest/model.safetensors"));
      },
      shared_options(folder));
}

/// A teacher that the program has prepared, a Trainer that has trained, and the student.
TEST_P(SeveralTrainings, SideBySideLoadTheirOwnBestModel) {
  const TemporaryFolder folder;
  const Outcome alone = train_plainly(GetParam(), best_at_end(folder, "alone"));
  run_accelerators(
      GetParam(),
      [&](Accelerator& accelerator) {
        torch::nn::Sequential teacher(torch::nn::Linear(3, 8), torch::nn::Tanh(), torch::nn::Dropout(),
                                      torch::nn::Linear(8, 1));
        const auto prepared = accelerator.prepare(teacher);
        const at::Tensor weight = teacher->parameters()[0].detach().clone();
        TrainingArguments other = best_at_end(folder, "other");
        other.learning_rate = 0.001, other.gradient_accumulation_steps = 1;
        Trainer first(accelerator, other, plain_parts());
        Trainer second(accelerator, best_at_end(folder, "own"), plain_parts());
        first.train();
        const Outcome before = outcome_of(first, {});
        expect_same(outcome_of(second, second.train()), alone);
        const Outcome after = outcome_of(first, {});
        for (std::size_t i = 0; i < before.weights.size(); ++i)
          EXPECT_TRUE(at::equal(before.weights[i], after.weights[i])) << i;
        EXPECT_TRUE(at::equal(teacher->parameters()[0], weight));
        EXPECT_EQ(accelerator.gradient_accumulation_steps(), 1) << "the program's own";
        // A checkpoint has the program's objects and the Trainer's, so that it can be resumed without the
        // other.
        const auto saved = folder / ("own/checkpoint-" + std::to_string(alone.output.global_step));
        EXPECT_TRUE(std::filesystem::exists(saved / "model_1.safetensors"));
        EXPECT_FALSE(std::filesystem::exists(saved / "model_2.safetensors"));
        EXPECT_FALSE(std::filesystem::exists(saved / "optimizer_1.json"));
      },
      shared_options(folder));
}

TEST_P(SeveralTrainings, OfOneTrainerKeepWhatTheProgramHasPrepared) {
  const TemporaryFolder folder;
  run_accelerators(GetParam(), [&](Accelerator& accelerator) {
    torch::nn::Linear own(2, 2);
    const auto prepared = accelerator.prepare(own);
    TrainingArguments args = arguments(folder);
    args.resume_from_checkpoint = "never";
    Trainer trainer(accelerator, args, plain_parts());
    for (int i = 0; i < 2; ++i) trainer.train();
    accelerator.save_state(folder / "both");
    EXPECT_TRUE(load_file(folder / "both/model.safetensors").tensors.contains("weight"));
    EXPECT_TRUE(std::filesystem::exists(folder / "both/model_1.safetensors"));
    EXPECT_FALSE(std::filesystem::exists(folder / "both/model_2.safetensors"));
  });
}

struct Counter final : Checkpointable {
  SafeTensors state_dict() const override { return {}; }
  void load_state_dict(const SafeTensors& /*state*/) override {}
};

TEST(PreparedObjects, ThatAreGoneAreNamedWhenSaving) {
  const TemporaryFolder folder;
  Accelerator accelerator(World::single());
  {
    torch::nn::Linear net(2, 2);
    torch::optim::SGD sgd(net->parameters(), 0.1);
    const auto prepared = accelerator.prepare(sgd);
    accelerator.save_state(folder / "there");
  }
  EXPECT_THROWS(accelerator.save_state(folder / "gone"), UsageError, "optimizer #1", "free_memory()");
  EXPECT_FALSE(std::filesystem::exists(folder / "gone"));
  accelerator.free_memory();
  {
    Counter counter;
    accelerator.register_for_checkpointing("counter", counter);
  }
  EXPECT_THROWS(accelerator.save_state(folder / "gone"), UsageError, "'counter' was destroyed");
  Counter next;
  accelerator.register_for_checkpointing("counter", next);
  accelerator.free_memory();
  {
    torch::nn::Linear net(2, 2);
    torch::optim::SGD sgd(net->parameters(), 0.1);
    optim::LrScheduler scheduler(sgd, {.name = "constant"});
    accelerator.prepare(scheduler);
    accelerator.save_state(folder / "scheduled");
  }
  EXPECT_THROWS(accelerator.save_state(folder / "gone"), UsageError, "scheduler #1");
}

/// Of a class that only the program knows.
class OwnOptimizer final : public torch::optim::Optimizer {
 public:
  explicit OwnOptimizer(const std::vector<at::Tensor>& parameters)
      : Optimizer({torch::optim::OptimizerParamGroup(parameters)},
                  std::make_unique<torch::optim::SGDOptions>(0.1)) {}
  at::Tensor step(LossClosure /*closure*/ = nullptr) override { return {}; }
};

using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(const std::vector<at::Tensor>&)>;

std::map<std::string, MakeOptimizer> kinds_of_optimizers() {
  using namespace torch::optim;
  return {{"Adam", [](const auto& all) { return std::make_unique<Adam>(all); }},
          {"AdamW", [](const auto& all) { return std::make_unique<AdamW>(all); }},
          {"SGD", [](const auto& all) { return std::make_unique<SGD>(all, SGDOptions(0.1).momentum(0.9)); }},
          {"RMSprop", [](const auto& all) { return std::make_unique<RMSprop>(all); }},
          {"Adagrad", [](const auto& all) { return std::make_unique<Adagrad>(all); }},
          {"optim::AdamW", [](const auto& all) { return std::make_unique<lockstep::optim::AdamW>(all); }}};
}

/// As programs in Python do, whose accelerator keeps the result. Its user keeps the optimizer.
TEST(PreparedObjects, AreSavedAlthoughTheResultOfPrepareWasDropped) {
  const TemporaryFolder folder;
  for (const auto& [name, make] : kinds_of_optimizers()) {
    SCOPED_TRACE(name);
    Accelerator accelerator(World::single());
    torch::nn::Linear net(2, 1);
    const auto step = [&](torch::optim::Optimizer& optimizer) {
      optimizer.zero_grad();
      optimizer.step([&] {
        const at::Tensor loss = net(at::ones({1, 2})).square().sum();
        loss.backward();
        return loss;
      });
    };
    {
      const auto optimizer = make(net->parameters());
      accelerator.prepare(net, *optimizer);
      step(*optimizer);
      accelerator.save_state(folder / name / "one");
      step(*optimizer);
      const at::Tensor after = net->weight.detach().clone();
      accelerator.load_state(folder / name / "one");
      step(*optimizer);
      EXPECT_TRUE(at::equal(net->weight, after));
      accelerator.save_state(folder / name / "two");
      if (!name.starts_with("optim::")) {
        // LibTorch's archives are as without the Accelerator.
        torch::save(*optimizer, folder / "archive.pt");
        const auto other = make(net->parameters());
        torch::load(*other, folder / "archive.pt");
        EXPECT_EQ(other->state().size(), 2U);
      }
    }
    EXPECT_THROWS(accelerator.save_state(folder / name / "gone"), UsageError, "optimizer #1",
                  "free_memory()");
    accelerator.free_memory();
    accelerator.save_state(folder / name / "nothing");
  }
}

TEST(PreparedObjects, OfAnUnknownClassOfOptimizerNeedTheResultOfPrepare) {
  const TemporaryFolder folder;
  Accelerator accelerator(World::single());
  torch::nn::Linear net(2, 1);
  OwnOptimizer optimizer(net->parameters());
  accelerator.prepare(optimizer);
  EXPECT_THROWS(accelerator.save_state(folder / "own"), UsageError, "what prepare() returned");
}

/// Another program may take it before the test does, which is unlikely.
std::uint16_t free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ::bind(socket, reinterpret_cast<sockaddr*>(&address), size);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(socket);
  return ntohs(address.sin_port);
}

World world_of(int rank, int size, std::uint16_t port) {
  World world;
  world.rank = world.local_rank = rank;
  world.world_size = world.local_world_size = size;
  world.master_addr = "127.0.0.1";
  world.master_port = port;
  return world;
}

/// Rank 0 hosts the store, and may be done with a group before the others are.
TEST(SeveralAccelerators, OfOneProcessJoinTheJobOneAfterAnother) {
  const std::uint16_t port = free_port();
  testing::run_ranks(2, [&](int rank) {
    for (int round = 0; round < 4; ++round) {
      Accelerator accelerator(world_of(rank, 2, port), {.timeout = std::chrono::seconds(60)});
      EXPECT_EQ(accelerator.reduce(at::ones({})).item<double>(), 2);
      if (round % 2 == 1) {
        const Accelerator beside(world_of(rank, 2, port), {.timeout = std::chrono::seconds(60)});
        EXPECT_EQ(beside.reduce(at::ones({})).item<double>(), 2);
        EXPECT_EQ(accelerator.reduce(at::ones({})).item<double>(), 2);
      }
    }
  });
}

/// Notes the rows of the data set that it reads.
class Reads final : public Trainer {
 public:
  Reads(const TrainingArguments& the_args, TrainerComponents the_parts, std::set<std::int64_t>& the_rows)
      : Trainer(the_args, std::move(the_parts)), rows_(&the_rows) {}
  Loss training_step(const Batch& batch) override {
    rows_->insert(batch.indices.begin(), batch.indices.end());
    return Trainer::training_step(batch);
  }

 private:
  std::set<std::int64_t>* rows_;
};

TEST(LimitedTraining, ReadsOtherSamplesInEachEpoch) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.limit_train_batches = 3;
  for (const bool shuffles : {true, false}) {
    args.train_sampling_strategy = shuffles ? SamplingStrategy::random : SamplingStrategy::sequential;
    std::set<std::int64_t> rows;
    TrainerComponents parts = plain_parts();
    Reads trainer(args, std::move(parts), rows);
    EXPECT_EQ(trainer.train().global_step, 3 * 2);
    if (shuffles) {
      EXPECT_GT(rows.size(), 12U);
    } else {
      EXPECT_EQ(rows, (std::set<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
    }
  }
}

/// The window ends with the epoch, and its mean is that of the micro-batches that it has.
TEST(LimitedTraining, OfEpochsShorterThanAWindowMakesOneStepEach) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.limit_train_batches = 3, args.logging_steps = 1;
  args.gradient_accumulation_steps = 3;
  const Outcome fitting = train_plainly(1, args);
  EXPECT_EQ(fitting.output.global_step, 3);
  args.gradient_accumulation_steps = 8;
  const Outcome shorter = train_plainly(1, args);
  EXPECT_EQ(shorter.output.global_step, 3);
  EXPECT_EQ(shorter.state.epoch, 3);
  expect_same(shorter, fitting);
}

}  // namespace
}  // namespace lockstep
