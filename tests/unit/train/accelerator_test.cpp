#include "lockstep/train/accelerator.hpp"

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>
#include <torch/utils.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "checkpoint/checkpoint_folder.hpp"
#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/version.hpp"
#include "support/accelerators.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using testing::message_of;
using testing::run_accelerators;
namespace fs = std::filesystem;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class EveryWorld : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, EveryWorld, ::testing::Values(1, 2, 3));

TEST_P(EveryWorld, KnowsWhoItIs) {
  run_accelerators(GetParam(), [&](Accelerator& accelerator) {
    EXPECT_EQ(accelerator.num_processes(), GetParam());
    EXPECT_EQ(accelerator.process_index(), accelerator.process_group().rank());
    EXPECT_EQ(accelerator.is_main_process(), accelerator.process_index() == 0);
    EXPECT_EQ(accelerator.is_local_main_process(), accelerator.local_process_index() == 0);
    EXPECT_EQ(accelerator.is_last_process(), accelerator.process_index() == GetParam() - 1);
    EXPECT_TRUE(accelerator.device().is_cpu());
  });
}

TEST_P(EveryWorld, TheMainProcessGoesFirst) {
  std::mutex mutex;
  std::vector<int> order;
  run_accelerators(GetParam(), [&](Accelerator& accelerator) {
    for (int round = 0; round < 3; ++round) {
      const auto guard = accelerator.main_process_first();
      if (accelerator.is_main_process()) std::this_thread::sleep_for(milliseconds(30));
      const std::lock_guard lock(mutex);
      order.push_back(accelerator.process_index());
    }
  });
  ASSERT_EQ(order.size(), static_cast<std::size_t>(3 * GetParam()));
  EXPECT_EQ(order.front(), 0);
}

TEST_P(EveryWorld, TheFormWithAFunctionReturnsItsValue) {
  std::atomic<bool> prepared{false};
  run_accelerators(GetParam(), [&](Accelerator& accelerator) {
    const int value = accelerator.local_main_process_first([&] {
      if (accelerator.is_local_main_process()) prepared = true;
      EXPECT_TRUE(prepared.load());
      return accelerator.process_index() + 10;
    });
    EXPECT_EQ(value, accelerator.process_index() + 10);
  });
}

TEST_P(EveryWorld, GatherTakesUnequalRows) {
  run_accelerators(GetParam(), [&](Accelerator& accelerator) {
    const int rank = accelerator.process_index();
    const at::Tensor gathered = accelerator.gather(at::full({rank, 2}, rank));
    std::vector<at::Tensor> expected;
    for (int r = 0; r < GetParam(); ++r) expected.push_back(at::full({r, 2}, r));
    EXPECT_TRUE(at::equal(gathered, at::cat(expected)));
    EXPECT_TRUE(at::equal(accelerator.gather(at::scalar_tensor(rank, at::kLong)), at::arange(GetParam())));
    const at::Tensor transposed = at::arange(6).view({2, 3}).t();
    EXPECT_TRUE(at::equal(accelerator.gather(transposed).narrow(0, 0, 3), transposed));
  });
}

TEST_P(EveryWorld, ReduceLeavesItsInputAlone) {
  run_accelerators(GetParam(), [&](Accelerator& accelerator) {
    const at::Tensor mine = at::full({2}, accelerator.process_index() + 1.0);
    const double sum = GetParam() * (GetParam() + 1) / 2.0;
    EXPECT_TRUE(at::equal(accelerator.reduce(mine), at::full({2}, sum)));
    EXPECT_TRUE(at::allclose(accelerator.reduce(mine, ReduceOp::avg), at::full({2}, sum / GetParam())));
    EXPECT_TRUE(at::equal(mine, at::full({2}, accelerator.process_index() + 1.0)));
  });
}

TEST(Accelerator, ShapesThatDoNotFitAreListedBeforeDataMoves) {
  run_accelerators(2, [&](Accelerator& accelerator) {
    const auto rank = accelerator.process_index();
    const auto text = message_of<CommunicationError>([&] { accelerator.gather(at::ones({1, rank + 2})); });
    EXPECT_TRUE(contains(text, "rank 0 has Float [1,2]; rank 1 has Float [1,3]")) << text;
    const auto dtypes = message_of<CommunicationError>(
        [&] { accelerator.reduce(rank == 0 ? at::ones({2}) : at::ones({1}, at::kDouble)); });
    EXPECT_TRUE(contains(dtypes, "rank 0 has Float [2]; rank 1 has Double [1]")) << dtypes;
    accelerator.wait_for_everyone();
  });
}

/// Whole numbers, so that both ways of summing give the same bits.
std::shared_ptr<Dataset> numbers(std::int64_t count) {
  const at::Tensor x = at::arange(count).remainder(5).sub(2).view({count, 1}).to(at::kFloat);
  return std::make_shared<TensorDataset>(Batch{{"x", x}, {"y", 3 * x + 1}});
}

TEST_P(EveryWorld, ThePreparedLoopTrainsAndTheRanksAgree) {
  run_accelerators(GetParam(),
                   [&](Accelerator& accelerator) {
                     torch::nn::Linear model(1, 1);
                     torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05));
                     DataLoader loader(numbers(48), {.batch_size = 4, .shuffle = true});
                     auto [ddp, opt, batches] = accelerator.prepare(model, optimizer, loader);
                     EXPECT_EQ(batches.size(), 12 / GetParam());
                     std::vector<std::int64_t> seen;
                     for (int epoch = 0; epoch < 20; ++epoch) {
                       for (auto& batch : batches) {
                         if (epoch == 0) seen.insert(seen.end(), batch.indices.begin(), batch.indices.end());
                         accelerator.backward(torch::mse_loss(ddp(batch["x"]), batch["y"]));
                         opt.step();
                         opt.zero_grad();
                       }
                     }
                     const auto all = accelerator.gather(torch::tensor(seen));
                     EXPECT_TRUE(torch::equal(std::get<0>(all.sort()), torch::arange(48)));
                     EXPECT_NEAR(model->weight.item<float>(), 3.0, 0.05);
                     EXPECT_NEAR(model->bias.item<float>(), 1.0, 0.05);
                     const auto weights = accelerator.gather(model->weight);
                     for (int r = 1; r < GetParam(); ++r) EXPECT_TRUE(torch::equal(weights[r], weights[0]));
                   },
                   {});
}

/// Three samples for two ranks: one rank has a batch more, and only while the ranks are joined.
TEST(JoinUnevenInputs, DividesUnevenlyInsideOnly) {
  run_accelerators(2, [&](Accelerator& accelerator) {
    torch::nn::Linear model(1, 1);
    const auto data = std::make_shared<TensorDataset>(Batch{{"x", at::arange(3.0).reshape({3, 1})}});
    auto [ddp, batches] = accelerator.prepare(model, DataLoader(data, {.batch_size = 1}));
    std::int64_t seen = 0;
    const auto pass = [&] {
      seen = 0;
      for (auto& batch : batches) {
        accelerator.backward(ddp(batch["x"]).sum());
        ++seen;
      }
    };
    accelerator.join_uneven_inputs(ddp, pass, {}, false);
    EXPECT_EQ(seen, accelerator.process_index() == 0 ? 2 : 1);
    EXPECT_EQ(batches.size(), 2);
    accelerator.join_uneven_inputs(ddp, pass);
    EXPECT_EQ(seen, 2);
    const auto inside = [&] { accelerator.join_uneven_inputs(ddp, pass, {}, false); };
    auto begun = batches.begin();
    EXPECT_THROWS(inside(), UsageError, "even_batches cannot change", "in a pass");
  });
}

TEST(Accelerator, ItsStateDictHasTheModulesOwnNames) {
  run_accelerators(1, [&](Accelerator& accelerator) {
    torch::nn::Sequential model(torch::nn::Linear(2, 3), torch::nn::BatchNorm1d(3));
    auto ddp = accelerator.prepare(model);
    const auto state = accelerator.get_state_dict(ddp);
    EXPECT_EQ(state.size(), 7U);
    EXPECT_EQ(state.at("0.weight").data_ptr(), model->named_parameters()["0.weight"].data_ptr());
    EXPECT_FALSE(state.at("0.weight").requires_grad());
    EXPECT_TRUE(state.contains("1.running_mean"));
  });
}

TEST(Accelerator, HooksAreCalledBeforeStatesAreWrittenAndRead) {
  const testing::TemporaryFolder folder;
  run_accelerators(1, [&](Accelerator& accelerator) {
    std::vector<std::string> calls;
    auto first = accelerator.register_save_state_pre_hook([&](const fs::path& path) {
      EXPECT_FALSE(fs::exists(path));
      calls.push_back("save " + path.filename().string());
    });
    auto second = accelerator.register_load_state_pre_hook(
        [&](const fs::path& path) { calls.push_back("load " + path.filename().string()); });
    accelerator.save_state(folder / "one");
    accelerator.load_state(folder / "one");
    first.remove();
    first.remove();
    accelerator.save_state(folder / "two");
    EXPECT_EQ(calls, (std::vector<std::string>{"save one", "load one"}));
  });
}

TEST(Accelerator, PrepareReturnsOneObjectPlainAndPreparedOnesAsTheyAre) {
  run_accelerators(1, [&](Accelerator& accelerator) {
    torch::nn::Linear model(1, 1);
    torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05));
    auto ddp = accelerator.prepare(model);
    auto [again, opt] = accelerator.prepare(ddp, optimizer);
    auto opt_again = accelerator.prepare(opt);
    EXPECT_EQ(&again.parameters(), &ddp.parameters());
    EXPECT_EQ(&opt_again.optimizer(), &optimizer);
    EXPECT_EQ(accelerator.unwrap_model(ddp).get(), model.get());
    EXPECT_EQ(accelerator.unwrap_model(model).get(), model.get());
  });
}

TEST_P(EveryWorld, AModelIsSavedOnceAndLoadedEverywhere) {
  const testing::TemporaryFolder folder;
  run_accelerators(GetParam(), [&](Accelerator& accelerator) {
    torch::manual_seed(5);
    torch::nn::Sequential model(torch::nn::Linear(2, 3), torch::nn::BatchNorm1d(3));
    auto ddp = accelerator.prepare(model);
    accelerator.save_model(ddp, folder.path() / "deep" / "out");
    EXPECT_TRUE(fs::exists(folder.path() / "deep/out/model.safetensors"));
    torch::nn::Sequential other(torch::nn::Linear(2, 3), torch::nn::BatchNorm1d(3));
    accelerator.load_model(other, folder.path() / "deep/out");
    const auto expected = model->named_parameters();
    for (const auto& entry : other->named_parameters()) {
      EXPECT_TRUE(torch::equal(entry.value(), expected[entry.key()])) << entry.key();
    }
  });
  const SafeTensors file = load_file(folder.path() / "deep/out/model.safetensors");
  EXPECT_EQ(file.tensors.size(), 7U);
  EXPECT_EQ(file.metadata.at("format"), "pt");
}

TEST(Accelerator, AModelThatDoesNotFitIsRefusedEverywhereAndUnchanged) {
  const testing::TemporaryFolder folder;
  run_accelerators(2, [&](Accelerator& accelerator) {
    torch::nn::Linear model(2, 3);
    accelerator.save({{"weight", torch::ones({2, 2})}, {"extra", torch::ones({1})}},
                     folder.path() / "m.safetensors");
    const at::Tensor before = model->weight.detach().clone();
    const auto load = [&] { accelerator.load_model(model, folder.path() / "m.safetensors"); };
    const auto text =
        accelerator.is_main_process() ? message_of<DataError>(load) : message_of<RemoteError>(load);
    EXPECT_TRUE(contains(text, "'weight' is Float [2, 2], expected Float [3, 2]")) << text;
    EXPECT_TRUE(contains(text, "'bias' (Float [3]) is missing")) << text;
    EXPECT_TRUE(contains(text, "'extra' (Float [1]) is not part of the model")) << text;
    EXPECT_TRUE(torch::equal(model->weight, before));
  });
}

TEST(Accelerator, TiedWeightsAreWrittenOnce) {
  const testing::TemporaryFolder folder;
  run_accelerators(1, [&](Accelerator& accelerator) {
    torch::nn::Linear shared(torch::nn::LinearOptions(2, 2).bias(false));
    torch::nn::Sequential model(shared, shared);
    accelerator.save_model(model, folder.path());
    EXPECT_EQ(load_file(folder.path() / "model.safetensors").tensors.size(), 1U);
    const at::Tensor before = shared->weight.detach().clone();
    {
      const torch::NoGradGuard no_grad;
      shared->weight.zero_();
    }
    accelerator.load_model(model, folder.path());
    EXPECT_TRUE(torch::equal(shared->weight, before));
  });
}

TEST(Accelerator, ASaveThatFailsFailsEverywhereAndLeavesNothing) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder.path() / "file") << "not a folder";
  run_accelerators(2, [&](Accelerator& accelerator) {
    torch::nn::Linear model(2, 3);
    const auto save = [&] { accelerator.save_model(model, folder.path() / "file" / "out"); };
    const auto text = accelerator.is_main_process() ? message_of<Error>(save) : message_of<RemoteError>(save);
    EXPECT_TRUE(contains(text, "cannot make the folder")) << text;
  });
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1);
}

TEST(Accelerator, DevicesAreNamed) {
  EXPECT_TRUE(choose_device("cpu", 0).is_cpu());
  EXPECT_TRUE(contains(message_of<UsageError>([] { choose_device("gpu", 0); }), "'gpu' is not a device"));
  EXPECT_TRUE(
      contains(message_of<UsageError>([] { choose_device("cuda:x", 0); }), "'cuda:x' is not a device"));
  EXPECT_TRUE(contains(message_of<UsageError>([] { choose_device("cuda:99", 0); }), "CUDA device 99"));
}

TEST(Accelerator, AWorldThatContradictsTheGroupIsRefused) {
  testing::run_group(
      2, [&](const ProcessGroup& group) { EXPECT_THROW(Accelerator(World::single(), group), UsageError); });
}

TEST(Accelerator, TwoOnOneGroupKeepApart) {
  testing::run_group(2, [&](const ProcessGroup& group) {
    World world;
    world.rank = world.local_rank = group.rank();
    world.world_size = world.local_world_size = 2;
    Accelerator one(world, group), two(world, group);
    one.on_main_process([] {});
    std::atomic<bool> ran{false};
    two.on_main_process([&] { ran = true; });
    EXPECT_EQ(ran.load(), group.rank() == 0);
  });
}

/// A shard contains what fits; other shards of an earlier model are removed.
TEST(SaveModel, InPartsAndBack) {
  const testing::TemporaryFolder folder;
  run_accelerators(2, [&](Accelerator& accelerator) {
    torch::nn::Sequential model(torch::nn::Linear(4, 4), torch::nn::Linear(4, 2));
    auto ddp = accelerator.prepare(model);
    accelerator.save_model(ddp, folder / "m", 70);
    torch::nn::Sequential other(torch::nn::Linear(4, 4), torch::nn::Linear(4, 2));
    accelerator.load_model(other, folder / "m");
    for (std::size_t i = 0; i < model->parameters().size(); ++i)
      EXPECT_TRUE(torch::equal(model->parameters()[i], other->parameters()[i]));
  });
  const auto names = [&] {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder / "m")) found.push_back(entry.path().filename());
    std::sort(found.begin(), found.end());
    return found;
  };
  EXPECT_EQ(names(),
            (std::vector<std::string>{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                                      "model.safetensors.index.json"}));
  run_accelerators(1, [&](Accelerator& accelerator) {
    torch::nn::Sequential model(torch::nn::Linear(4, 4), torch::nn::Linear(4, 2));
    fs::remove(folder / "m/model-00002-of-00002.safetensors");
    const auto load = [&] { accelerator.load_model(model, folder / "m"); };
    EXPECT_TRUE(contains(message_of<DataError>(load), "model-00002-of-00002"));
    accelerator.save_model(model, folder / "m");
  });
  EXPECT_EQ(names(), std::vector<std::string>{"model.safetensors"});
}

/// Split like Hugging Face does: a module's buffers come before the next module's parameters.
TEST(SaveModel, DividesInTheOrderOfTheStateDict) {
  const testing::TemporaryFolder folder;
  run_accelerators(1, [&](Accelerator& accelerator) {
    torch::nn::Sequential model(torch::nn::Linear(4, 4), torch::nn::BatchNorm1d(4), torch::nn::Linear(4, 2));
    accelerator.save_model(model, folder / "m", 4 * (16 + 4 + 4 * 4) + 8);
  });
  std::ifstream file(folder / "m/model.safetensors.index.json");
  const auto index = nlohmann::json::parse(file);
  for (const auto& [name, part] : index.at("weight_map").items())
    EXPECT_EQ(part, name.starts_with("2.") ? "model-00002-of-00002.safetensors"
                                           : "model-00001-of-00002.safetensors")
        << name;
  EXPECT_EQ(index.at("weight_map").size(), 9U);
}

/// Only rank 0 writes what all ranks log, and continues after the checkpoint's step.
TEST(Tracking, FollowsTheCheckpoint) {
  const testing::TemporaryFolder folder;
  const auto log = [&](Accelerator& accelerator, int from, int to) {
    accelerator.init_trackers({.log_with = {"jsonl"}, .folder = folder / "runs"});
    for (int step = from; step <= to; ++step) accelerator.log({{"loss", step}}, step);
    accelerator.log_histogram("w", torch::ones({3}), to);
  };
  run_accelerators(2, [&](Accelerator& accelerator) {
    accelerator.save_state(folder / "state", {.step = 2});
    log(accelerator, 1, 4);
    accelerator.end_training();
  });
  run_accelerators(2, [&](Accelerator& accelerator) {
    accelerator.load_state(folder / "state");
    log(accelerator, 3, 3);
  });
  std::ifstream file(folder / "runs/metrics.jsonl");
  int lines = 0;
  for (std::string line; std::getline(file, line);) ++lines;
  EXPECT_EQ(lines, 4);
}

/// The second rank is the first of another node; a different path simulates another disk.
TEST(SaveState, OnEachNodeThatHasADiskOfItsOwn) {
  const testing::TemporaryFolder folder;
  testing::run_group(2, [&](const ProcessGroup& group) {
    World world;
    world.rank = group.rank();
    world.world_size = group.size();
    Accelerator accelerator(world, group);
    const fs::path own = folder / std::to_string(group.rank());
    accelerator.save_state(own / "state", {.step = 1}, {.save_on_each_node = true});
    EXPECT_EQ(verify_checkpoint(own / "state").info.step, 1);
    std::atomic<bool> wrote{false};
    accelerator.save_state(folder / "shared", {},
                           {.save_on_each_node = true, .when_written = [&] { wrote = true; }});
    EXPECT_EQ(wrote, accelerator.is_main_process());
  });
  EXPECT_EQ(folder.files(), (std::vector<std::string>{"0", "1", "shared"}));
}

TEST(SaveState, SaysWhichVersionsWroteIt) {
  const testing::TemporaryFolder folder;
  Accelerator accelerator(World::single(), {.device = "cpu"});
  accelerator.save_state(folder / "state", {.metric = 0.5});
  const CheckpointInfo info = accelerator.load_state(folder / "state").info;
  EXPECT_EQ(info.lockstep_version, version());
  EXPECT_TRUE(info.libtorch_version.starts_with("2."));
  EXPECT_EQ(info.metric, 0.5);
}

/// The gradients of the checkpoint's run were sent in buckets of other parameters.
TEST(LoadState, FitsWhereOtherLayersAreFrozen) {
  const testing::TemporaryFolder folder;
  run_accelerators(2, [&](Accelerator& accelerator) {
    const auto with_net = [&](bool freeze, const auto& action) {
      torch::nn::Sequential net(torch::nn::Linear(3, 4), torch::nn::Linear(4, 1));
      if (freeze) net[0]->as<torch::nn::Linear>()->weight.requires_grad_(false);
      torch::optim::SGD sgd(net->parameters(), 0.1);
      const auto prepared = accelerator.prepare(net, sgd);
      action();
      accelerator.free_memory();
    };
    with_net(false, [&] { accelerator.save_state(folder / "all"); });
    with_net(true, [&] { accelerator.load_state(folder / "all"); });
  });
}

}  // namespace
}  // namespace lockstep
