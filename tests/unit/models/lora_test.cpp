#include "lockstep/models/lora.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

#include "lockstep/core/error.hpp"
#include "lockstep/models/auto_model.hpp"
#include "lockstep/models/decoder.hpp"
#include "lockstep/models/trainer_model.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "lockstep/parallel/sharded_init.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"
#include "unit/models/golden_models.hpp"
#include "unit/parallel/sharded_net.hpp"

namespace lockstep::models {
namespace {

using testing::TemporaryFolder;

/// The rest of the line "NAME what ..." in golden/lora.txt.
std::string golden_text(const std::string& name, const std::string& what) {
  std::ifstream file(LOCKSTEP_GOLDEN_MODELS);
  const std::string mark = name + " " + what + " ";
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(mark)) return line.substr(mark.size());
  throw std::runtime_error("no golden line: " + mark);
}

/// zlib's.
std::uint32_t crc_of(const std::string& bytes) {
  std::uint32_t crc = ~0U;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc % 2 == 1 ? 0xEDB88320U : 0U);
  }
  return ~crc;
}

/// The model of a case, without its adapter.
CausalLM base_of(const std::string& name) {
  const TemporaryFolder folder;
  testing::write_bytes(folder.path() / "config.json", golden_configs().at(name));
  auto model = AutoModelForCausalLM::from_config(folder.path());
  model->eval();
  return model;
}

LoraConfig adapter_of(const std::string& name) {
  const TemporaryFolder folder;
  testing::write_bytes(folder.path() / kAdapterConfigFileName,
                       nlohmann::json::parse(golden_text(name, "adapter")).get<std::string>());
  return LoraConfig::from_file(folder.path());
}

CausalLM adapted_model(const std::string& name) {
  auto model = base_of(name);
  add_lora(model, adapter_of(name));
  fill(*model);
  return model;
}

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const auto& [name, config] : golden_configs()) names.push_back(name);
  return names;
}

class Lora : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Golden, Lora, ::testing::ValuesIn(case_names()),
                         [](const auto& test) { return test.param; });

TEST_P(Lora, AnswersAndLearnsAsPeft) {
  const auto& name = GetParam();
  auto model = adapted_model(name);
  std::set<std::string> trained;
  for (const auto& entry : model->named_parameters())
    if (entry.value().requires_grad()) trained.insert(entry.key());
  std::istringstream expected(golden_text(name, "trained"));
  std::set<std::string> names;
  for (std::string word; expected >> word;) names.insert(word);
  EXPECT_EQ(trained, names);
  const at::Tensor tokens = ids(2, 12, 50);
  const at::Tensor logits = model->forward(tokens);
  expect_golden(name + " logits", logits);
  const at::Tensor loss = causal_lm_loss(logits, tokens);
  expect_golden(name + " loss", loss);
  loss.backward();
  expect_gradients(name, *model, {trained.begin(), trained.end()});
}

TEST_P(Lora, NewAdaptersHaveTheValuesOfPeftForTheSameSeed) {
  const auto& name = GetParam();
  auto model = base_of(name);
  torch::manual_seed(3);
  add_lora(model, adapter_of(name));
  int compared = 0;
  for (const auto& entry : model->named_parameters()) {
    const std::string key = name + " new:" + entry.key();
    if (!golden().contains(key)) continue;
    expect_golden(key, entry.value(), 1e-7);
    ++compared;
  }
  EXPECT_EQ(compared, 2);
}

TEST_P(Lora, FilesAreThoseOfPeftByteForByteAndCanBeReadAgain) {
  const auto& name = GetParam();
  auto model = adapted_model(name);
  const TemporaryFolder folder;
  save_pretrained(model, folder.path());
  EXPECT_EQ(testing::read_bytes(folder.path() / kAdapterConfigFileName),
            nlohmann::json::parse(golden_text(name, "adapter")).get<std::string>());
  const std::string bytes = testing::read_bytes(folder.path() / kAdapterFileName);
  std::istringstream form(golden_text(name, "file"));
  std::size_t size = 0;
  std::uint32_t crc = 0;
  form >> size >> crc;
  EXPECT_EQ(bytes.size(), size);
  EXPECT_EQ(crc_of(bytes), crc);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "config.json"));
  EXPECT_THROWS(AutoModelForCausalLM::from_pretrained(folder.path()), DataError, "the folder of an adapter",
                "models/base", "--adapter");

  auto other = base_of(name);
  fill(*other);
  load_adapter(other, folder.path());
  const at::Tensor tokens = ids(2, 12, 50);
  EXPECT_TRUE(at::equal(other->forward(tokens), model->forward(tokens)));
}

TEST_P(Lora, MergedWeightsAreThoseOfPeft) {
  const auto& name = GetParam();
  auto model = adapted_model(name);
  merge_lora(model);
  EXPECT_EQ(lora_of(model), nullptr);
  expect_golden(name + " merged", model->forward(ids(2, 12, 50)));
  int compared = 0;
  for (const auto& entry : model->named_parameters()) {
    EXPECT_EQ(entry.key().find("lora_"), std::string::npos) << entry.key();
    if (!golden().contains(name + " merged:" + entry.key())) continue;
    expect_golden(name + " merged:" + entry.key(), entry.value());
    ++compared;
  }
  EXPECT_EQ(compared, 1);
  // transformers would put an adapter that is left in the folder on top of what is merged.
  const TemporaryFolder adapters;
  save_pretrained(adapted_model(name), adapters.path());
  ASSERT_TRUE(std::filesystem::exists(adapters.path() / kAdapterConfigFileName));
  save_pretrained(model, adapters.path());
  EXPECT_FALSE(std::filesystem::exists(adapters.path() / kAdapterConfigFileName));
  EXPECT_FALSE(std::filesystem::exists(adapters.path() / "adapter_model.safetensors"));
  // The whole model, whose head is tied or not as before.
  const TemporaryFolder folder;
  save_pretrained(model, folder.path());
  auto again = AutoModelForCausalLM::from_pretrained(folder.path());
  again->eval();
  EXPECT_TRUE(at::equal(again->forward(ids(2, 12, 50)), model->forward(ids(2, 12, 50))));
}

TEST_P(Lora, SwitchedOffTheModelIsAsBefore) {
  const auto& name = GetParam();
  auto model = adapted_model(name);
  const at::Tensor tokens = ids(2, 12, 50);
  if (!golden().contains(name + " off")) {
    EXPECT_THROWS(AdapterOff{model}, UsageError, "AdapterOff", "old values are not kept");
    return;
  }
  {
    const AdapterOff off(model);
    { const AdapterOff again(model); }
    expect_golden(name + " off", model->forward(tokens));
  }
  expect_golden(name + " logits", model->forward(tokens));
}

TEST(LoraConfigFile, SettingsThatAreNotImplementedAreNamedAndOthersKept) {
  const auto read = [](const nlohmann::ordered_json& fields) {
    const TemporaryFolder folder;
    auto json = nlohmann::ordered_json::parse(
        nlohmann::json::parse(golden_text("llama", "adapter")).get<std::string>());
    json.update(fields);
    testing::write_bytes(folder.path() / kAdapterConfigFileName, json.dump());
    return LoraConfig::from_file(folder.path());
  };
  EXPECT_THROWS(read({{"use_dora", true}}), DataError, "use_dora", "not implemented");
  EXPECT_THROWS(read({{"trainable_token_indices", {1}}}), DataError, "trainable_token_indices");
  EXPECT_THROWS(read({{"peft_type", "IA3"}}), DataError, "peft_type", "LORA");
  EXPECT_THROWS(read({{"init_lora_weights", "pissa"}}), DataError, "init_lora_weights");
  EXPECT_THROWS(read({{"r", 0}}), DataError, "'r'");
  EXPECT_THROWS(read({{"bias", "some"}}), DataError, "bias", "lora_only");
  EXPECT_THROWS(read({{"target_modules", 3}}), DataError, "target_modules");
  const auto kept = read({{"of_tomorrow", 7}, {"layers_to_transform", 1}});
  EXPECT_NE(kept.to_json().find("\"of_tomorrow\": 7"), std::string::npos);
  EXPECT_NE(kept.to_json().find("\"layers_to_transform\": 1"), std::string::npos);
}

TEST(LoraConfigFile, ANewOneHasTheFieldsOfPeft) {
  const auto theirs =
      nlohmann::json::parse(nlohmann::json::parse(golden_text("llama", "adapter")).get<std::string>());
  LoraConfig config{.r = 4, .lora_alpha = 8, .target_modules = {"v_proj", "q_proj"}};
  config.task_type = "CAUSAL_LM";
  config.base_model_name_or_path = "models/base";
  auto ours = nlohmann::json::parse(config.to_json());
  ours["peft_version"] = theirs["peft_version"];
  ours["target_modules"] = theirs["target_modules"];
  EXPECT_EQ(ours, theirs);
}

TEST(AddLora, RefusesWhatItCannotDo) {
  auto model = base_of("llama");
  const auto add = [&](LoraConfig config) { return add_lora(model, std::move(config)); };
  EXPECT_THROWS(add({.target_modules = {"query"}}), UsageError, "names no layer", "q_proj");
  EXPECT_THROWS(add({.target_modules = {"lm_head"}}), UsageError, "lm_head", "modules_to_save");
  EXPECT_THROWS(add({.target_modules = "[q_proj"}), UsageError, "regular expression");
  EXPECT_THROWS(add({.target_modules = {"q_proj", "v_porj"}}), UsageError, "names 'v_porj'", "v_proj");
  EXPECT_THROWS(add({.exclude_modules = ".*k_porj"}), UsageError, "exclude_modules is '.*k_porj'");
  EXPECT_THROWS(add({.rank_pattern = {{"k_proj", 4}}}), UsageError, "rank_pattern names 'k_proj'");
  EXPECT_THROWS(add({.r = 0}), UsageError, "r is 0");
  EXPECT_THROWS(add({.modules_to_save = {"score"}}), UsageError, "score");
  auto tied = base_of("llama_usual");
  EXPECT_THROWS(add_lora(tied, {.modules_to_save = {"embed_tokens"}}), UsageError, "embed_tokens");
  for (const auto& parameter : model->parameters()) EXPECT_TRUE(parameter.requires_grad());
  add({});
  EXPECT_THROWS(add({}), UsageError, "already");
  EXPECT_THROWS(merge_lora(tied), UsageError, "no adapter");
}

/// Merging would change the head with the embedding, as it does in PEFT.
TEST(AddLora, TheTableOfATiedHeadIsNotMerged) {
  for (const char* name : {"llama_all", "gpt2"}) {
    auto model = base_of(name);
    const at::Tensor tokens = ids(2, 12, 50), before = model->forward(tokens);
    const std::string table = name == std::string("gpt2") ? "wte" : "embed_tokens";
    add_lora(model, {.r = 2, .target_modules = {table}});
    EXPECT_TRUE(at::equal(model->forward(tokens), before)) << name;
    fill(*model);
    EXPECT_THROWS(merge_lora(model), UsageError, table, "the head shares the weights");
    torch::nn::Module outer;
    outer.register_module("inner", model.ptr());
    const at::Tensor adapted = model->forward(tokens);
    EXPECT_THROWS(merge_lora(outer), UsageError, "inner", table, "the head shares the weights");
    EXPECT_TRUE(at::equal(model->forward(tokens), adapted)) << name;
    const TemporaryFolder folder;
    save_adapter(model, folder.path());
    auto other = base_of(name);
    fill(*other);
    load_adapter(other, folder.path());
    EXPECT_TRUE(at::equal(other->forward(tokens), model->forward(tokens))) << name;
    const AdapterOff off(other);
    EXPECT_FALSE(at::equal(other->forward(tokens), model->forward(tokens))) << name;
  }
}

TEST(LoadAdapter, ChangesNothingIfTheFilesDoNotFit) {
  auto model = base_of("llama");
  const TemporaryFolder folder;
  save_pretrained(adapted_model("llama"), folder.path());
  auto config = adapter_of("llama");
  config.r = 5;
  testing::write_bytes(folder.path() / kAdapterConfigFileName, config.to_json());
  EXPECT_THROWS(load_adapter(model, folder.path()), DataError, "lora_A.weight", "does not fit");
  EXPECT_EQ(lora_of(model), nullptr);
  for (const auto& entry : model->named_parameters()) {
    EXPECT_TRUE(entry.value().requires_grad());
    EXPECT_EQ(entry.key().find("lora_"), std::string::npos);
  }
}

// ---- Data parallelism: a frozen base in bfloat16, and adapters in float32.

DecoderForCausalLM adapted_decoder(const std::string& type, at::ScalarType dtype) {
  DecoderForCausalLM model(testing::decoder_config(type));
  fill(*model);
  model->to(dtype);
  add_lora(model, {.r = 2, .lora_alpha = 4, .target_modules = "all-linear"});
  const at::NoGradGuard no_grad;
  int number = 1;
  for (auto& parameter : model->parameters())
    if (parameter.requires_grad())
      parameter.copy_(
          at::arange(parameter.numel()).mul(0.31 * ++number).sin().mul(0.1).view(parameter.sizes()));
  return model;
}

std::vector<at::Tensor> trained_of(const DecoderForCausalLM& model) {
  std::vector<at::Tensor> trained;
  for (auto& parameter : model->parameters())
    if (parameter.requires_grad()) trained.push_back(parameter);
  return trained;
}

const auto lora_loss = [](auto& model, int rank, int step) {
  const at::Tensor tokens = torch::arange(16).mul(rank + 3).add(step).remainder(37).view({2, 8});
  return causal_lm_loss(model(tokens).to(at::kFloat), tokens);
};

/// An adapter that was trained, as its file.
template <class Wrapped>
std::string trained_file(Wrapped& wrapped, DecoderForCausalLM model, const auto& whole,
                         const std::function<int(int)>& data) {
  set_activation_checkpointing(model);
  testing::losses_of(
      wrapped, trained_of(model), [&](auto& net, int step) { return lora_loss(net, data(step), step); }, 2);
  [[maybe_unused]] const auto parameters = whole();
  const TemporaryFolder folder;
  save_adapter(model, folder.path());
  return testing::read_bytes(folder.path() / kAdapterFileName);
}

std::string trained_with_ddp(const ProcessGroup& group, at::ScalarType dtype, bool same_data) {
  auto model = adapted_decoder("llama", dtype);
  DistributedDataParallel<DecoderForCausalLM> wrapped(model, group);
  return trained_file(
      wrapped, model, [] { return 0; }, [&](int) { return same_data ? 0 : group.rank(); });
}

std::string trained_with_fsdp(const ProcessGroup& group, at::ScalarType dtype, bool same_data) {
  auto model = adapted_decoder("llama", dtype);
  auto wrapped = fully_shard(model, group);
  EXPECT_THROWS(save_adapter(model, "nowhere"), UsageError, "full_parameters()");
  EXPECT_THROWS(merge_lora(model), UsageError, "sharded");
  return trained_file(
      wrapped, model, [&] { return wrapped.full_parameters(); },
      [&](int) { return same_data ? 0 : group.rank(); });
}

TEST(LoraInParallel, DdpFsdpAndOneRankTrainTheSameAdapterBitForBit) {
  for (const auto dtype : {at::kBFloat16, at::kFloat}) {
    std::string alone;
    testing::run_group(1, [&](const ProcessGroup& group) { alone = trained_with_ddp(group, dtype, true); });
    const TemporaryFolder untrained;
    save_adapter(adapted_decoder("llama", dtype), untrained.path());
    EXPECT_NE(alone, testing::read_bytes(untrained.path() / kAdapterFileName));
    testing::run_group(2, [&](const ProcessGroup& group) {
      EXPECT_EQ(trained_with_ddp(group, dtype, true), alone);
      EXPECT_EQ(trained_with_fsdp(group, dtype, true), alone);
      EXPECT_EQ(trained_with_fsdp(group, dtype, false), trained_with_ddp(group, dtype, false));
    });
  }
}

TEST(LoraInParallel, AnAdapterOfADividedModelTrainsAsAnother) {
  const TemporaryFolder folder;
  {
    DecoderForCausalLM model(testing::decoder_config("llama"));
    fill(*model);
    save_pretrained(model, folder.path());
  }
  testing::run_group(2, [&](const ProcessGroup& group) {
    const auto train = [&](bool divided) {
      std::optional<ShardedInit> init;
      if (divided) init.emplace(group);
      auto model = AutoModelForCausalLM::from_pretrained(folder.path(), {.dtype = at::kBFloat16});
      EXPECT_EQ(model->parameters().front().scalar_type(), at::kBFloat16);
      add_lora(model, {.r = 2, .lora_alpha = 4, .target_modules = "all-linear"});
      init.reset();
      std::vector<at::Tensor> trained;
      int number = 1;
      for (auto& parameter : model->parameters()) {
        if (!parameter.requires_grad()) continue;
        EXPECT_EQ(parameter.scalar_type(), at::kFloat);
        const at::NoGradGuard no_grad;
        parameter.copy_(at::arange(parameter.numel()).mul(++number).sin().mul(0.1).view(parameter.sizes()));
        trained.push_back(parameter);
      }
      auto wrapped = fully_shard(model, group);
      return testing::losses_of(
          wrapped, trained, [&](auto& net, int step) { return lora_loss(net, group.rank(), step); }, 1);
    };
    const auto whole = train(false);
    EXPECT_EQ(train(true), whole);
    EXPECT_LT(whole.back(), whole.front());
  });
}

// ---- The examples of docs/models.md

class ScorerImpl : public torch::nn::Module {
 public:
  ScorerImpl() {
    hidden_ = register_module("hidden", models::Linear(6, 12));
    score_ = register_module("score", models::Linear(12, 1));
  }
  at::Tensor forward(const at::Tensor& values) { return score_(at::relu(hidden_(values))); }

 private:
  models::Linear hidden_{nullptr}, score_{nullptr};
};
TORCH_MODULE(Scorer);

TEST(LoraPage, AModelOfYourOwnHasAdapters) {
  torch::manual_seed(5);
  const at::Tensor values = torch::randn({16, 6}), wanted = values.sum(1, true);
  const TemporaryFolder out;
  Scorer scorer;
  models::add_lora(scorer, {.r = 4, .target_modules = {"hidden"}, .modules_to_save = {"score"}});
  optim::AdamW optimizer(scorer->parameters(), {.lr = 0.01});
  const at::Tensor before = scorer->named_parameters()["hidden.weight"].detach().clone();
  double first = 0, last = 0;
  for (int step = 0; step < 100; ++step) {
    const at::Tensor loss = at::mse_loss(scorer(values), wanted);
    last = loss.item<double>();
    if (step == 0) first = last;
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  EXPECT_LT(last, 0.5 * first);
  models::save_adapter(scorer, out.path());
  const at::Tensor answers = scorer(values);
  models::merge_lora(scorer);
  EXPECT_TRUE(at::allclose(scorer(values), answers, 1e-4, 1e-5));
  EXPECT_FALSE(at::equal(scorer->named_parameters()["hidden.weight"], before));
}

TEST(LoraPage, AFolderIsAdaptedSavedAndMerged) {
  const TemporaryFolder base, out, whole;
  const auto& folder = base.path();
  save_pretrained(DecoderForCausalLM(testing::decoder_config("llama")), folder);
  auto llama = models::AutoModelForCausalLM::from_pretrained(folder, {.dtype = at::kBFloat16});
  models::add_lora(llama, {.r = 16, .lora_alpha = 32, .target_modules = "all-linear"});
  models::save_pretrained(llama, out.path());  // adapter_config.json and adapter_model.safetensors

  auto again = models::AutoModelForCausalLM::from_pretrained(folder);
  models::load_adapter(again, out.path());
  models::merge_lora(again);
  models::save_pretrained(again, whole.path());
  EXPECT_TRUE(std::filesystem::exists(whole.path() / "config.json"));
  EXPECT_EQ(LoraConfig::from_file(out.path()).base_model_name_or_path, folder.string());
}

TEST(WeightsDtype, IsThatOfTheOptionTheConfigurationOrTheFiles) {
  const TemporaryFolder folder;
  DecoderForCausalLM model(testing::decoder_config("llama"));
  model->to(at::kBFloat16);
  save_pretrained(model, folder.path());
  const auto dtype_of = [&](std::optional<at::ScalarType> dtype) {
    auto loaded = AutoModelForCausalLM::from_pretrained(folder.path(), {.dtype = dtype});
    for (const auto& parameter : loaded->parameters())
      EXPECT_EQ(parameter.scalar_type(), loaded->parameters().front().scalar_type());
    return loaded->parameters().front().scalar_type();
  };
  EXPECT_EQ(AutoModelForCausalLM::from_pretrained(folder.path())->parameters().front().scalar_type(),
            at::kFloat);
  EXPECT_EQ(dtype_of(at::kHalf), at::kHalf);
  EXPECT_EQ(dtype_of(std::nullopt), at::kBFloat16);
  const auto file = folder.path() / "config.json";
  auto config = nlohmann::ordered_json::parse(testing::read_bytes(file));
  config["torch_dtype"] = "float16";
  testing::write_bytes(file, config.dump());
  EXPECT_EQ(dtype_of(std::nullopt), at::kHalf);
  config["torch_dtype"] = "float8_e4m3fn";
  testing::write_bytes(file, config.dump());
  EXPECT_THROWS(dtype_of(std::nullopt), DataError, "torch_dtype");
  EXPECT_EQ(dtype_of_name("auto"), std::nullopt);
  EXPECT_EQ(dtype_of_name("bfloat16"), at::kBFloat16);
  EXPECT_THROWS(dtype_of_name("int8"), UsageError, "int8");
}

TEST(WeightsDtype, TrainingShortWeightsIsWarnedOfOnceAndAdaptersAreNot) {
  DecoderForCausalLM model(testing::decoder_config("llama"));
  model->to(at::kBFloat16);
  const CausalLM as_base(std::static_pointer_cast<CausalLMImpl>(model.ptr()));
  add_lora(model, {.r = 2});
  ::testing::internal::CaptureStderr();
  trainer_model(as_base);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  for (auto& parameter : model->parameters()) parameter.requires_grad_(true);
  ::testing::internal::CaptureStderr();
  trainer_model(as_base);
  trainer_model(as_base);
  const std::string warning = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(warning.find("BFloat16, for example 'model.embed_tokens.weight'"), std::string::npos) << warning;
  EXPECT_EQ(warning.find("warning"), warning.rfind("warning"));
}

TEST(LengthOfTexts, APromptThatFillsTheModelNeedsALength) {
  auto model = base_of("llama");
  EXPECT_THROWS(generate(model, ids(1, 32, 50)), UsageError, "32 tokens", "max_new_tokens");
  const at::Tensor longer = generate(model, ids(1, 32, 50), GenerationConfig{.max_new_tokens = 2});
  EXPECT_GE(longer.size(1), 33);
  // The room that is left.
  const at::Tensor filled = generate(model, ids(1, 30, 50), GenerationConfig{.suppress_tokens = {{2}}});
  EXPECT_EQ(filled.size(1), 32);
}

}  // namespace
}  // namespace lockstep::models
