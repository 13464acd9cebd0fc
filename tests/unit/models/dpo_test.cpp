// Preferences: what trl's DPOTrainer was recorded to do (golden/dpo.json), and the same bits on any wrapper.

#include "lockstep/models/dpo.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/core/error.hpp"
#include "lockstep/models/auto_model.hpp"
#include "lockstep/models/lora.hpp"
#include "support/accelerators.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"
#include "unit/models/golden_models.hpp"

namespace lockstep::models {
namespace {

using nlohmann::ordered_json;
using testing::TemporaryFolder;
namespace fs = std::filesystem;

const ordered_json& recorded() {
  static const ordered_json data = [] {
    std::ifstream file(LOCKSTEP_DPO_GOLDEN);
    return ordered_json::parse(file);
  }();
  return data;
}

/// The rows "texts" as tokens.
class PairRows final : public Dataset {
 public:
  std::int64_t size() const override { return 4; }
  Example get(std::int64_t index, const SampleContext&) const override {
    Example example;
    for (const char* name : {"chosen_ids", "chosen_labels", "rejected_ids", "rejected_labels"}) {
      const auto ids =
          recorded()["pairs"][0][name][static_cast<std::size_t>(index)].get<std::vector<std::int64_t>>();
      example.set(name, at::tensor(ids, at::kLong));
    }
    return example;
  }
};

CausalLM plain_gpt2(double dropout = 0) {
  const TemporaryFolder folder;
  const ordered_json config{{"model_type", "gpt2"},   {"vocab_size", 403},     {"n_positions", 32},
                            {"n_embd", 32},           {"n_layer", 2},          {"n_head", 2},
                            {"resid_pdrop", dropout}, {"embd_pdrop", dropout}, {"attn_pdrop", dropout},
                            {"bos_token_id", 402},    {"eos_token_id", 402}};
  testing::write_bytes(folder / "config.json", config.dump());
  auto model = AutoModelForCausalLM::from_config(folder.path());
  fill(*model);
  return model;
}

CausalLM gpt2_with_adapter() {
  auto model = plain_gpt2();
  add_lora(model, {.r = 4, .lora_alpha = 8, .target_modules = {"c_attn", "c_proj"}});
  fill(*model);
  const at::NoGradGuard no_grad;
  for (auto& entry : model->named_parameters())
    if (entry.key().find(".lora_") != std::string::npos) entry.value().mul_(0.3);
  return model;
}

DpoOptions options_of(const ordered_json& given) {
  DpoOptions options{.beta = given.value("beta", 0.1),
                     .label_smoothing = given.value("label_smoothing", 0.0)};
  const std::string loss = given["loss_type"];
  if (loss == "ipo") options.loss_type = DpoLoss::ipo;
  if (loss == "robust") options.loss_type = DpoLoss::robust;
  if (loss == "hinge") options.loss_type = DpoLoss::hinge;
  options.precomputed_reference = given.value("precompute_ref_log_probs", false);
  return options;
}

TrainingArguments ten_steps(const fs::path& out, int ranks = 1) {
  TrainingArguments args;
  args.output_dir = out;
  args.per_device_train_batch_size = 4 / ranks;
  args.per_device_eval_batch_size = 3;
  args.learning_rate = 1e-3;
  args.max_steps = 10;
  args.logging_steps = 1;
  args.save_strategy = SaveStrategy::no;
  args.disable_tqdm = true;
  args.device = "cpu";
  return args;
}

struct PairRun {
  TrainerState state;
  std::map<std::string, at::Tensor> weights;

  std::vector<double> logged(const std::string& name) const {
    std::vector<double> values;
    for (const auto& entry : state.log_history)
      if (const auto value = entry.find(name); value && entry.find("loss")) values.push_back(*value);
    return values;
  }
};

TrainerComponents parts_of(const CausalLM& model, const DpoOptions& options, const CausalLM& reference) {
  return {.model = dpo_model(model, options, reference),
          .train_dataset = std::make_shared<PairRows>(),
          .eval_dataset = std::make_shared<PairRows>(),
          .data_collator = preference_collate(402),
          .compute_metrics = dpo_metrics()};
}

/// What is trained, and the reference: "full", the same model; "lora", what has the adapter; "adapter", a
/// second model with the same adapter; "second", a second model beside an adapter.
PairRun train_pairs(int ranks, const TrainingArguments& args, const DpoOptions& options,
                    const std::string& kind) {
  PairRun run;
  testing::run_accelerators(
      ranks,
      [&](Accelerator& accelerator) {
        const CausalLM model = kind == "full" ? plain_gpt2() : gpt2_with_adapter();
        CausalLM reference = nullptr;
        if (kind == "adapter") reference = gpt2_with_adapter();
        if (kind == "full" || kind == "second") reference = plain_gpt2();
        auto parts = parts_of(model, options, options.precomputed_reference ? nullptr : reference);
        if (options.precomputed_reference)
          parts.train_dataset =
              precompute_reference(accelerator, reference, parts.train_dataset, parts.data_collator, 3);
        DpoTrainer trainer(accelerator, args, parts);
        trainer.train();
        const auto whole = trainer.model().full_parameters(accelerator);
        if (!accelerator.is_main_process()) return;
        run.state = trainer.state();
        for (const auto& entry : model->named_parameters())
          run.weights[entry.key()] = entry.value().detach().clone();
      },
      accelerator_options(args));
  return run;
}

void expect_same_runs(const PairRun& one, const PairRun& other) {
  for (const char* name : {"loss", "rewards/margins", "logps/chosen"})
    EXPECT_EQ(one.logged(name), other.logged(name)) << name;
  ASSERT_EQ(one.weights.size(), other.weights.size());
  for (const auto& [name, tensor] : one.weights)
    EXPECT_TRUE(at::equal(tensor, other.weights.at(name))) << name;
}

TEST(Dpo, HasTheLossesAndRewardsOfTrlOverTenSteps) {
  const TemporaryFolder folder;
  for (const auto& wanted : recorded()["runs"]) {
    const std::string kind = wanted["kind"];
    SCOPED_TRACE(kind + " " + wanted["options"].dump());
    const PairRun run = train_pairs(1, ten_steps(folder / "out"), options_of(wanted["options"]), kind);
    for (const auto& [name, values] : wanted.items()) {
      if (name == "kind" || name == "options") continue;
      const auto expected = values.get<std::vector<double>>();
      const auto found = run.logged(name);
      ASSERT_EQ(found.size(), expected.size()) << name;
      for (std::size_t i = 0; i < found.size(); ++i) {
        // Of rewards that are equal, rounding decides which is higher.
        if (name == "rewards/accuracies" && wanted["rewards/margins"][i] == 0.0) continue;
        EXPECT_NEAR(found[i], expected[i], 2e-4 * std::max(1.0, std::abs(expected[i])))
            << name << ", step " << i + 1;
      }
    }
  }
}

TEST(Dpo, AnAdapterThatIsSwitchedOffIsTheReferenceThatASecondModelIs) {
  const TemporaryFolder folder;
  const auto args = ten_steps(folder / "out");
  expect_same_runs(train_pairs(1, args, {.beta = 0.5}, "lora"),
                   train_pairs(1, args, {.beta = 0.5}, "second"));
}

TEST(Dpo, DdpAndFsdpTrainTheSameBits) {
  const TemporaryFolder folder;
  for (const char* kind : {"full", "lora"}) {
    auto args = ten_steps(folder / "ddp", 2);
    // The two add up the norm in another order.
    args.max_grad_norm = 0;
    const PairRun ddp = train_pairs(2, args, {}, kind);
    args.fsdp = "full_shard";
    const PairRun fsdp = train_pairs(2, args, {}, kind);
    expect_same_runs(ddp, fsdp);
    auto one = ten_steps(folder / "one");
    one.max_grad_norm = 0;
    const PairRun alone = train_pairs(1, one, {}, kind);
    for (std::size_t i = 0; i < 10; ++i)
      EXPECT_NEAR(ddp.logged("loss")[i], alone.logged("loss")[i], 1e-5) << i;
  }
}

/// Ranks with one pair and with two, so that means of means would differ.
TEST(Dpo, EachPairWeighsTheSameOnAnyNumberOfRanks) {
  const TemporaryFolder folder;
  LogValues one, three;
  for (const int ranks : {1, 3}) {
    auto args = ten_steps(folder / "out");
    testing::run_accelerators(ranks, [&](Accelerator& accelerator) {
      DpoTrainer trainer(accelerator, args, parts_of(gpt2_with_adapter(), {}, nullptr));
      const auto values = trainer.evaluate();
      if (accelerator.is_main_process()) (ranks == 1 ? one : three) = values;
    });
  }
  int compared = 0;
  for (std::size_t i = 0; i < one.size(); ++i) {
    if (one[i].first.find("runtime") != std::string::npos || one[i].first.find("second") != std::string::npos)
      continue;
    EXPECT_EQ(one[i].first, three[i].first);
    EXPECT_NEAR(one[i].second, three[i].second, 1e-5) << one[i].first;
    ++compared;
  }
  EXPECT_EQ(compared, 7);
}

TEST(Dpo, IsResumedBitForBitWithItsLog) {
  const TemporaryFolder folder;
  auto args = ten_steps(folder / "out");
  args.logging_steps = 3;
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 4;
  const PairRun whole = train_pairs(1, args, {}, "lora");
  fs::remove_all(folder / "out/checkpoint-8");
  fs::remove_all(folder / "out/checkpoint-10");
  EXPECT_FALSE(fs::exists(folder / "out/checkpoint-4/model.safetensors"));
  expect_same_runs(train_pairs(1, args, {}, "lora"), whole);
}

/// Also where ranks compute parts of different sizes.
TEST(Dpo, APrecomputedReferenceIsTheOneThatIsComputedInEachStep) {
  const TemporaryFolder folder;
  auto args = ten_steps(folder / "out", 2);
  const PairRun whole = train_pairs(2, args, {}, "full");
  const PairRun precomputed = train_pairs(2, args, {.precomputed_reference = true}, "full");
  for (const char* name : {"loss", "rewards/margins", "logps/rejected"}) {
    const auto found = precomputed.logged(name), wanted = whole.logged(name);
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 1e-4) << name << i;
  }
  testing::run_accelerators(3, [&](Accelerator& accelerator) {
    const auto pairs = std::make_shared<PairRows>();
    const auto made = precompute_reference(accelerator, plain_gpt2(), pairs, preference_collate(402), 1);
    Accelerator own(World::single(), {.device = "cpu"});
    const auto alone = precompute_reference(own, plain_gpt2(), pairs, preference_collate(402), 1);
    ASSERT_EQ(made->size(), 4);
    EXPECT_EQ(made->fingerprint(),
              "[" + pairs->fingerprint() + "] with the log-probabilities of a reference");
    for (std::int64_t i = 0; i < 4; ++i)
      for (const char* name : {"ref_chosen_logps", "ref_rejected_logps"})
        EXPECT_TRUE(at::equal(made->get(i, {})[name], alone->get(i, {})[name])) << i << name;
  });
}

TEST(Dpo, LogitsInPartsGiveTheSameLossesAndGradients) {
  const auto pairs = std::make_shared<PairRows>();
  const Batch batch = preference_collate(0)({pairs->get(0, {}), pairs->get(1, {}), pairs->get(3, {})});
  std::vector<at::Tensor> wanted;
  for (const std::int64_t at_a_time : {0, 403, 2 * 403}) {
    const auto model = plain_gpt2();
    const auto adapter = dpo_model(model, {.logits_at_a_time = at_a_time}, plain_gpt2());
    Accelerator accelerator(World::single(), {.device = "cpu"});
    adapter->prepare(accelerator);
    const Batch outputs = adapter->forward(batch);
    outputs["loss_sum"].backward();
    std::vector<at::Tensor> found{outputs["loss_sum"].detach(), outputs["logps/rejected"]};
    for (const auto& parameter : model->parameters()) found.push_back(parameter.grad());
    if (wanted.empty()) wanted = found;
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_TRUE(at::allclose(found[i], wanted[i], 1e-4, 1e-6)) << i;
  }
}

TEST(Dpo, ForgetsDropoutUnlessItIsAskedFor) {
  const auto pairs = std::make_shared<PairRows>();
  const Batch batch = preference_collate(0)({pairs->get(0, {}), pairs->get(1, {})});
  for (const bool disables : {true, false}) {
    const auto adapter = dpo_model(plain_gpt2(0.5), {.disable_dropout = disables}, plain_gpt2(0.5));
    Accelerator accelerator(World::single(), {.device = "cpu"});
    adapter->prepare(accelerator);
    adapter->train(true);
    const at::Tensor first = adapter->forward(batch)["logps/chosen"],
                     again = adapter->forward(batch)["logps/chosen"];
    EXPECT_EQ(at::equal(first, again), disables);
    EXPECT_EQ(at::allclose(adapter->forward(batch)["rewards/chosen"], at::zeros({2}), 0, 1e-5), disables);
  }
}

TEST(Dpo, ConservativeLossesExpectSwappedPairs) {
  const OfPairs model{at::tensor({-3.0, -5.0}), at::tensor({-4.0, -2.0})},
      reference{at::tensor({-3.5, -4.0}), at::tensor({-3.5, -4.0})};
  const OfPairs lengths{at::tensor({2, 3}), at::tensor({2, 4})};
  const auto loss = [&](double smoothing) {
    return dpo_losses(model, reference, lengths, {.label_smoothing = smoothing});
  };
  const at::Tensor swapped =
      dpo_losses({model.rejected, model.chosen}, {reference.rejected, reference.chosen}, lengths, {});
  EXPECT_TRUE(at::allclose(loss(0.25), loss(0) * 0.75 + swapped * 0.25));
}

TEST(Dpo, RefusesWhatIsNoReferenceAndNoOption) {
  const auto model = plain_gpt2();
  EXPECT_THROWS(dpo_model(model), UsageError, "needs a reference", "add_lora");
  EXPECT_THROWS(dpo_model(model, {}, model), UsageError, "own weights");
  EXPECT_THROWS(dpo_model(model, {.precomputed_reference = true}, plain_gpt2()), UsageError, "only one");
  EXPECT_THROWS(dpo_model(model, {.beta = 0}, plain_gpt2()), UsageError, "beta is 0");
  EXPECT_THROWS(dpo_model(model, {.label_smoothing = 0.5}, plain_gpt2()), UsageError, "less than 0.5");
  EXPECT_THROWS(dpo_model(model, {.loss_type = DpoLoss::ipo, .label_smoothing = 0.1}, plain_gpt2()),
                UsageError, "sigmoid");
  auto biased = plain_gpt2();
  add_lora(biased, {.target_modules = {"c_attn"}, .bias = "all"});
  EXPECT_THROWS(dpo_model(biased), UsageError, "AdapterOff", "old values");
  const TemporaryFolder folder;
  auto args = ten_steps(folder / "out");
  args.label_smoothing_factor = 0.1;
  Accelerator accelerator(World::single(), {.device = "cpu"});
  EXPECT_THROWS(DpoTrainer(accelerator, args, parts_of(model, {}, plain_gpt2())), UsageError,
                "label_smoothing_factor");
}

}  // namespace
}  // namespace lockstep::models
