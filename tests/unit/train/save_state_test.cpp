#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <mutex>

#include "checkpoint/checkpoint_folder.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/train/checkpoints.hpp"
#include "support/accelerators.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::contains_all, testing::message_of, testing::run_accelerators;
using testing::TemporaryFolder;
using Losses = std::vector<double>;

constexpr std::int64_t kSamples = 48, kBatch = 4;

std::shared_ptr<const Dataset> samples() {
  const at::Tensor x = at::linspace(-1, 1, kSamples * 3).reshape({kSamples, 3});
  return std::make_shared<TensorDataset>(Batch{{"x", x}, {"y", x.sum(1, true).sin()}});
}

/// A small training with everything that must be saved: dropout, batch norm, a shuffle, read-ahead, a sum.
class Job : public Checkpointable {
 public:
  explicit Job(Accelerator& accelerator, std::uint64_t seed = 1, bool dropout = true)
      : accelerator_(accelerator) {
    torch::manual_seed(seed);
    model_ = torch::nn::Sequential(torch::nn::Linear(3, 8), torch::nn::BatchNorm1d(8),
                                   torch::nn::Dropout(dropout ? 0.5 : 0.0), torch::nn::Linear(8, 1));
    optimizer_ =
        std::make_unique<torch::optim::AdamW>(model_->parameters(), torch::optim::AdamWOptions(0.05));
    DataLoader loader(samples(), {.batch_size = kBatch, .shuffle = true, .num_workers = 2, .seed = 9});
    ddp_.emplace(accelerator.prepare(model_));
    accelerated_.emplace(accelerator.prepare(*optimizer_));
    loader_.emplace(accelerator.prepare(loader));
    accelerator.register_for_checkpointing("sum", *this);
  }

  /// The losses of `steps` steps. `after` is called after each.
  Losses train(int steps, const std::function<void()>& after = {}) {
    Losses losses;
    while (steps > 0) {
      for (auto& batch : *loader_) {
        const at::Tensor loss = torch::mse_loss((*ddp_)(batch["x"]), batch["y"]);
        accelerated_->zero_grad();
        accelerator_.backward(loss);
        accelerated_->step();
        losses.push_back(loss.item<double>());
        sum_ += losses.back();
        if (after) after();
        if (--steps == 0) break;
      }
    }
    return losses;
  }

  std::vector<at::Tensor> tensors() const {
    auto tensors = model_->parameters();
    for (const auto& buffer : model_->buffers()) tensors.push_back(buffer);
    return tensors;
  }

  double sum() const { return sum_; }
  std::int64_t epoch() const { return loader_->epoch(); }
  std::int64_t position() const { return loader_->position(); }

  SafeTensors state_dict() const override {
    return {.tensors = {{"sum", at::scalar_tensor(sum_, at::kDouble)}}, .metadata = {{"unit", "loss"}}};
  }
  void load_state_dict(const SafeTensors& state) override {
    EXPECT_EQ(state.metadata.at("unit"), "loss");
    sum_ = state.tensors.at("sum").item<double>();
  }

 private:
  Accelerator accelerator_;
  torch::nn::Sequential model_{nullptr};
  std::unique_ptr<torch::optim::AdamW> optimizer_;
  std::optional<DistributedDataParallel<torch::nn::Sequential>> ddp_;
  std::optional<AcceleratedOptimizer> accelerated_;
  std::optional<DataLoader> loader_;
  double sum_ = 0;
};

Accelerator alone() { return Accelerator(World::single(), {.device = "cpu"}); }

void expect_equal(const Job& one, const Job& other) {
  const auto left = one.tensors();
  const auto right = other.tensors();
  ASSERT_EQ(left.size(), right.size());
  for (std::size_t i = 0; i < left.size(); ++i) EXPECT_TRUE(at::equal(left[i], right[i])) << i;
}

void flip_byte(const fs::path& path) {
  std::string bytes = testing::read_bytes(path);
  bytes.at(bytes.size() / 2) ^= 1;
  testing::write_bytes(path, bytes);
}

/// At the first step, in the middle of an epoch, at its last step, and in a later epoch.
class SavedAfter : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Steps, SavedAfter, ::testing::Values(1, 5, 12, 17));

TEST_P(SavedAfter, ResumesWithTheSameBits) {
  const TemporaryFolder folder;
  Accelerator first = alone();
  Job straight(first);
  straight.train(GetParam());
  first.save_state(folder / "state", {.step = GetParam()});
  const Losses wanted = straight.train(20);

  Accelerator second = alone();
  Job resumed(second, /*seed=*/77);
  resumed.train(3);  // Its earlier training must not matter.
  const Checkpoint from = second.load_state(folder / "state");
  EXPECT_EQ(from.info.step, GetParam());
  EXPECT_EQ(from.info.epoch, GetParam() / 13);
  EXPECT_EQ(resumed.train(20), wanted);
  EXPECT_EQ(resumed.sum(), straight.sum());
  expect_equal(straight, resumed);
}

/// Without dropout: threads share one random generator, so only processes can test it.
TEST(SaveState, ResumesWithTheSameBitsOnTwoRanks) {
  const TemporaryFolder folder;
  run_accelerators(2, [&](Accelerator& accelerator) {
    Job straight(accelerator, 1, false);
    straight.train(4);
    accelerator.save_state(folder / "state");
    const Losses wanted = straight.train(8);
    accelerator.free_memory();
    Job resumed(accelerator, 2, false);
    accelerator.load_state(folder / "state");
    EXPECT_EQ(resumed.train(8), wanted);
    expect_equal(straight, resumed);
  });
  EXPECT_TRUE(fs::exists(folder / "state/random_states_1.safetensors"));
}

TEST(SaveState, AnotherWorldSizeResumesAfterTheSameSamples) {
  const TemporaryFolder folder;
  run_accelerators(2, [&](Accelerator& accelerator) {
    Job job(accelerator, 1, false);
    job.train(3);
    accelerator.save_state(folder / "state");
  });
  Accelerator one = alone();
  Job job(one, 2, false);
  EXPECT_EQ(one.load_state(folder / "state").info.world_size, 2);
  EXPECT_EQ(job.position(), 6);
  one.save_state(folder / "next");
  job.train(1);
  one.save_state(folder / "odd");
  run_accelerators(2, [&](Accelerator& accelerator) {
    Job again(accelerator, 3, false);
    accelerator.load_state(folder / "next");
    EXPECT_EQ(again.position(), 3);
    // 28 of 48 samples are done: the other 20 are three batches of two ranks.
    accelerator.load_state(folder / "odd");
    EXPECT_EQ(again.position(), 3);
  });
}

/// A failure while loading changes nothing in model, optimizer or objects, and reaches every rank.
TEST(LoadState, WhatDoesNotFitChangesNothing) {
  const TemporaryFolder folder;
  {
    Accelerator accelerator = alone();
    torch::nn::Linear other(2, 2);
    accelerator.prepare(other);
    accelerator.save_state(folder / "other");
    Job job(accelerator);
    accelerator.save_state(folder / "more");
  }
  std::atomic<int> heard{0};
  run_accelerators(2, [&](Accelerator& accelerator) {
    Job job(accelerator, 1, false);
    std::vector<at::Tensor> before;
    for (const auto& tensor : job.tensors()) before.push_back(tensor.clone());
    for (const auto* name : {"other", "more", "none"}) {
      const auto load = [&] { accelerator.load_state(folder / name); };
      if (accelerator.is_main_process()) {
        EXPECT_THROW(load(), DataError);
      } else {
        EXPECT_THROW(load(), RemoteError);
      }
      ++heard;
    }
    for (std::size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(at::equal(before[i], job.tensors()[i]));
  });
  EXPECT_EQ(heard, 6);
}

TEST(LoadState, SaysWhichObjectsAreMissing) {
  const TemporaryFolder folder;
  Accelerator few = alone();
  torch::nn::Linear model(2, 2);
  few.prepare(model);
  few.save_state(folder / "few");
  Accelerator many = alone();
  torch::nn::Linear one(2, 2);
  torch::nn::Linear two(2, 2);
  many.prepare(one, two);
  EXPECT_THROWS(many.load_state(folder / "few"), DataError, "no model_1.safetensors", "fewer models");
  many.save_state(folder / "many");
  EXPECT_THROWS(few.load_state(folder / "many"), DataError, "has model_1.safetensors", "more models");
}

TEST(LoadLatestState, PassesOverWhatIsDamagedOnEveryRank) {
  const TemporaryFolder folder;
  run_accelerators(2, [&](Accelerator& accelerator) {
    Job job(accelerator, 1, false);
    for (const int step : {1, 2}) {
      job.train(1);
      accelerator.save_state(folder / checkpoint_name(step), {.step = step});
    }
    accelerator.on_main_process([&] { flip_byte(folder / "checkpoint-2/model.safetensors"); });
    if (accelerator.is_main_process()) ::testing::internal::CaptureStderr();
    const auto latest = accelerator.load_latest_state(folder.path());
    if (accelerator.is_main_process()) {
      EXPECT_TRUE(contains_all(::testing::internal::GetCapturedStderr(), {"checkpoint-2' is skipped"}));
    }
    EXPECT_EQ(latest.checkpoint->info.step, 1);
    ASSERT_EQ(latest.passed_over.size(), 1U);
    EXPECT_TRUE(contains_all(latest.passed_over[0].reason, {"model.safetensors' has the checksum"}));
    EXPECT_EQ(job.position(), 1);
    EXPECT_FALSE(accelerator.load_latest_state(folder / "none").checkpoint);
    accelerator.on_main_process([&] { flip_byte(folder / "checkpoint-1/model.safetensors"); });
    EXPECT_THROWS(accelerator.load_latest_state(folder.path()), DataError, "no checkpoint in", "checkpoint-1",
                  "checkpoint-2", "start over");
  });
}

TEST(SaveState, AFullDiskReachesEveryRankAndNobodyHangs) {
  const TemporaryFolder folder;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit unlimited{};
  ::getrlimit(RLIMIT_FSIZE, &unlimited);
  std::atomic<int> heard{0};
  run_accelerators(2, [&](Accelerator& accelerator) {
    Job job(accelerator, 1, false);
    accelerator.save_state(folder / "state", {.step = 1});
    const rlimit limit{1000, unlimited.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const auto save = [&] { accelerator.save_state(folder / "state", {.step = 2}); };
    const std::string text =
        accelerator.is_main_process() ? message_of<Error>(save) : message_of<RemoteError>(save);
    EXPECT_TRUE(contains_all(text, {"File too large", "free space"})) << text;
    ++heard;
    accelerator.wait_for_everyone();
    ::setrlimit(RLIMIT_FSIZE, &unlimited);
    EXPECT_EQ(accelerator.load_state(folder / "state").info.step, 1);
  });
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(heard, 2);
  EXPECT_EQ(folder.files(), std::vector<std::string>{"state"});
}

/// What training changes while the thread writes is not in the checkpoint.
TEST(SaveState, WritesWhileTheTrainingContinues) {
  const TemporaryFolder folder;
  run_accelerators(2, [&](Accelerator& accelerator) {
    Job straight(accelerator, 1, false);
    straight.train(4);
    std::atomic<bool> written{false};
    accelerator.save_state(folder / "state", {.step = 4},
                           {.asynchronous = true, .when_written = [&] { written = true; }});
    const Losses wanted = straight.train(8);
    accelerator.wait_for_save();
    EXPECT_EQ(written, accelerator.is_main_process());
    accelerator.free_memory();
    Job resumed(accelerator, 2, false);
    EXPECT_EQ(accelerator.load_state(folder / "state").info.step, 4);
    EXPECT_EQ(resumed.train(8), wanted);
    expect_equal(straight, resumed);
  });
}

TEST(SaveState, AFailureOfAnAsynchronousSaveIsThrownLater) {
  const TemporaryFolder folder;
  testing::write_bytes(folder / "file", "");
  run_accelerators(2, [&](Accelerator& accelerator) {
    Job job(accelerator, 1, false);
    accelerator.save_state(folder / "file" / "state", {}, {.asynchronous = true});
    const auto next = [&] { accelerator.save_state(folder / "state", {}, {.asynchronous = true}); };
    const std::string text =
        accelerator.is_main_process() ? message_of<Error>(next) : message_of<RemoteError>(next);
    EXPECT_TRUE(contains_all(text, {"file"})) << text;
    next();
    accelerator.wait_for_save();
    accelerator.load_state(folder / "state");
  });
}

TEST(Checkpoints, KeepTheBestAndAreWrittenWhileTheTrainingContinues) {
  const TemporaryFolder folder;
  Accelerator accelerator = alone();
  Job job(accelerator);
  {
    Checkpoints checkpoints(
        accelerator,
        {.folder = folder.path().string(), .every = 1, .keep_last = 1, .keep_best = 1, .asynchronous = true});
    const Losses metrics = {5, 1, 3, 4};
    job.train(4, [&] {
      checkpoints.after_step();
      checkpoints.save(metrics.at(static_cast<std::size_t>(checkpoints.step() - 1)));
    });
    checkpoints.wait();
  }
  std::vector<std::int64_t> steps;
  for (const auto& checkpoint : list_checkpoints(folder.path())) steps.push_back(checkpoint.info.step);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{4, 2}));
  EXPECT_EQ(verify_checkpoint(folder / "checkpoint-2").info.metric, 1);
}

TEST(RegisterForCheckpointing, WantsNamesForFiles) {
  Accelerator accelerator = alone();
  Job job(accelerator);
  EXPECT_THROWS(accelerator.register_for_checkpointing("sum", job), UsageError, "'sum' is taken");
  for (const auto* name : {"", "a/b", "a b"}) {
    EXPECT_THROWS(accelerator.register_for_checkpointing(name, job), UsageError, "part of a file's name");
  }
}

/// Any rank may ask, at any time: all ranks get the answer in the same call, the one after.
TEST(ShouldStop, IsAgreedByAllRanks) {
  for (const int wisher : {0, 1, 2}) {
    std::mutex mutex;
    std::vector<int> calls;
    run_accelerators(3, [&](Accelerator& accelerator) {
      int call = 1;
      for (; call < 100; ++call) {
        if (call == 5 && accelerator.process_index() == wisher) accelerator.request_stop();
        if (accelerator.should_stop()) break;
      }
      EXPECT_TRUE(accelerator.should_stop());
      const std::lock_guard lock(mutex);
      calls.push_back(call);
    });
    EXPECT_EQ(calls, (std::vector<int>{6, 6, 6}));
  }
}

TEST(ShouldStop, AnswersAtOnceAlone) {
  Accelerator accelerator = alone();
  EXPECT_FALSE(accelerator.should_stop());
  accelerator.request_stop();
  EXPECT_TRUE(accelerator.should_stop());
}

TEST(Checkpoints, KeepGoingWhereTheyStopped) {
  const TemporaryFolder folder;
  const CheckpointOptions options{.folder = (folder / "c").string(), .every = 3, .keep_last = 2};
  Losses wanted;
  {
    Accelerator accelerator = alone();
    Job job(accelerator);
    wanted = job.train(20);
  }
  Accelerator accelerator = alone();
  Job job(accelerator);
  {
    Checkpoints checkpoints(accelerator, options);
    checkpoints.resume();
    job.train(10, [&] { EXPECT_FALSE(checkpoints.after_step()); });
    EXPECT_EQ(checkpoints.step(), 10);
  }
  Accelerator later = alone();
  Job rest(later, 5);
  Checkpoints checkpoints(later, options);
  checkpoints.resume();
  EXPECT_EQ(checkpoints.step(), 9);
  EXPECT_EQ(rest.train(11), Losses(wanted.begin() + 9, wanted.end()));
  EXPECT_FALSE(fs::exists(folder / "c/checkpoint-3"));
  EXPECT_TRUE(fs::exists(folder / "c/checkpoint-6"));
}

TEST(Checkpoints, AStopLeavesACheckpointOfThatVeryStep) {
  const TemporaryFolder folder;
  Accelerator accelerator = alone();
  Job job(accelerator);
  Checkpoints checkpoints(accelerator, {.folder = folder.path().string()});
  std::vector<bool> answers;
  job.train(4, [&] {
    if (answers.size() == 2) ::raise(SIGUSR1);
    answers.push_back(checkpoints.after_step());
  });
  EXPECT_EQ(answers, (std::vector<bool>{false, false, true, true}));
  EXPECT_TRUE(fs::exists(folder / "checkpoint-3"));
}

/// Existing work that cannot be resumed is an error instead of a silent new start; a first start prints
/// nothing.
TEST(Checkpoints, ThatAreAllDamagedAreAnErrorUnlessARunStartsOver) {
  const TemporaryFolder folder;
  const auto run = [&](const std::string& resume) {
    Accelerator accelerator = alone();
    Job job(accelerator);
    Checkpoints checkpoints(accelerator, {.folder = folder.path().string(), .every = 1, .resume = resume});
    checkpoints.resume();
    job.train(1, [&] { checkpoints.after_step(); });
    return checkpoints.step() - 1;
  };
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(run("auto"), 0);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  flip_byte(folder / "checkpoint-1/model.safetensors");
  EXPECT_THROWS(run("auto"), DataError, folder.path().string(), "checkpoint-1", "checksum", "'never'",
                "--resume");
  EXPECT_EQ(run("never"), 0);
  EXPECT_EQ(run("auto"), 1);
}

/// The same command line with a path works for the first start and for each restart.
TEST(Checkpoints, APathIsWhereTheFirstStartBeginsOnly) {
  const TemporaryFolder folder;
  const auto run = [&](const std::string& name, const std::string& resume, int steps) {
    Accelerator accelerator = alone();
    Job job(accelerator);
    Checkpoints checkpoints(
        accelerator, {.folder = (folder / name).string(), .every = 1, .keep_last = 0, .resume = resume});
    checkpoints.resume();
    const auto begin = checkpoints.step();
    job.train(steps, [&] { checkpoints.after_step(); });
    return begin;
  };
  EXPECT_EQ(run("c", "auto", 5), 0);
  const std::string second = (folder / "c/checkpoint-2").string();
  EXPECT_EQ(run("c", second, 1), 2);  // Writes checkpoint-3 again, beside 4 and 5 of the first run.
  EXPECT_EQ(run("c", second, 1), 3);
  EXPECT_EQ(run("d", second, 1), 2);
  EXPECT_EQ(run("c", "auto", 1), 4);
  EXPECT_EQ(run("c", "never", 1), 0);
  EXPECT_EQ(run("c", "auto", 1), 1);
  EXPECT_THROWS(run("d", (folder / "c/checkpoint-99").string(), 1), DataError, "checkpoint-99");
}

TEST(Checkpoints, ASecondJobIsKeptOut) {
  const TemporaryFolder folder;
  Accelerator accelerator = alone();
  const Checkpoints first(accelerator, {.folder = folder.path().string()});
  EXPECT_THROWS(Checkpoints(accelerator, {.folder = folder.path().string()}), UsageError,
                "in use by process ", "Two jobs must not write into one folder");
}

TEST(Checkpoints, WithoutAFolderNothingHappens) {
  Accelerator accelerator = alone();
  Job job(accelerator);
  Checkpoints checkpoints(accelerator, {});
  checkpoints.resume();
  EXPECT_EQ(job.train(2, [&] { EXPECT_FALSE(checkpoints.after_step()); }).size(), 2U);
  checkpoints.save();
  struct sigaction now {};
  ::sigaction(SIGTERM, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_DFL);
  EXPECT_THROWS(Checkpoints(accelerator, {.every = 3}), UsageError, "needs a folder");
  EXPECT_THROWS(Checkpoints(accelerator, {.keep_last = -1}), UsageError, "0 or more");
}

TEST(Checkpoints, MayContinueAfterAFullDisk) {
  const TemporaryFolder folder;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit unlimited{};
  ::getrlimit(RLIMIT_FSIZE, &unlimited);
  run_accelerators(2, [&](Accelerator& accelerator) {
    Job job(accelerator, 1, false);
    Checkpoints checkpoints(
        accelerator,
        {.folder = folder.path().string(), .every = 1, .keep_last = 0, .continue_after_failed_save = true});
    job.train(3, [&] {
      const rlimit limit{checkpoints.step() == 1 ? 1000 : unlimited.rlim_cur, unlimited.rlim_max};
      ::setrlimit(RLIMIT_FSIZE, &limit);
      accelerator.wait_for_everyone();
      EXPECT_FALSE(checkpoints.after_step());
      accelerator.wait_for_everyone();
    });
  });
  ::setrlimit(RLIMIT_FSIZE, &unlimited);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(folder.files(), (std::vector<std::string>{"checkpoint-1", "checkpoint-3"}));
}

}  // namespace
}  // namespace lockstep
