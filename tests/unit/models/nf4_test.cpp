#include "lockstep/models/nf4.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/models/auto_model.hpp"
#include "lockstep/models/decoder.hpp"
#include "lockstep/models/lora.hpp"
#include "lockstep/models/token_loss_model.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "lockstep/parallel/fully_shard.hpp"
#include "lockstep/parallel/sharded_init.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"
#include "unit/models/golden_models.hpp"
#include "unit/parallel/sharded_net.hpp"

namespace lockstep::models {
namespace {

using testing::TemporaryFolder;
using Fields = nlohmann::ordered_json;

/// The rest of the line "NAME what ..." in golden/nf4.txt.
std::string golden_line(const std::string& name, const std::string& what) {
  std::ifstream file(LOCKSTEP_GOLDEN_MODELS);
  const std::string mark = name + " " + what + " ";
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(mark)) return line.substr(mark.size());
  throw std::runtime_error("no golden line: " + mark);
}

/// zlib's CRC-32 of the bytes.
std::uint32_t crc(const at::Tensor& tensor) {
  if (!tensor.defined()) return 0;
  const at::Tensor bytes = tensor.detach().contiguous().view(-1).view(at::kByte);
  const auto* byte = bytes.const_data_ptr<std::uint8_t>();
  std::uint32_t crc = ~0U;
  for (std::int64_t i = 0; i < bytes.numel(); ++i) {
    crc ^= byte[i];
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc % 2 == 1 ? 0xEDB88320U : 0U);
  }
  return ~crc;
}

/// As make_nf4.py's values().
at::Tensor nf4_values(std::int64_t rows, std::int64_t columns, at::ScalarType dtype,
                      const std::string& name) {
  const at::Tensor i = at::arange(rows * columns);
  const at::Tensor whole = (i * i * 13 + i * 7919).remainder(2003) - 1001;
  const at::Tensor halvings = at::floor_divide(i, 64).remainder(3).to(at::kFloat);
  at::Tensor scaled = whole.to(at::kFloat) / 1024 / at::pow(2.0, halvings);
  if (name == "zeros") scaled.narrow(0, 64, 64).zero_();
  return scaled.view({rows, columns}).to(dtype);
}

TEST(Nf4, LevelsAreThoseOfBitsandbytes) {
  EXPECT_EQ(std::to_string(crc(nf4_levels())), golden_line("levels", "nf4"));
  EXPECT_EQ(std::to_string(crc(nested_levels())), golden_line("levels", "nested"));
}

struct Nf4Case {
  std::string name;
  std::int64_t rows, columns;
  at::ScalarType dtype;
  bool double_quant = true;
};

TEST(Nf4, QuantizesAndDequantizesToTheBitsOfBitsandbytes) {
  for (const auto& [name, rows, columns, dtype, double_quant] :
       {Nf4Case{"small", 7, 10, at::kFloat}, Nf4Case{"odd", 3, 5, at::kBFloat16},
        Nf4Case{"plain", 40, 24, at::kHalf, false}, Nf4Case{"rows", 24, 96, at::kFloat},
        Nf4Case{"large", 300, 512, at::kFloat}, Nf4Case{"large_bf16", 300, 512, at::kBFloat16},
        Nf4Case{"zeros", 4, 64, at::kFloat}}) {
    const Nf4Weight weight = quantize_nf4(nf4_values(rows, columns, dtype, name), double_quant);
    std::istringstream line(golden_line(name, "quantized"));
    std::uint32_t packed = 0, absmax = 0, nested = 0;
    double offset = 0;
    line >> packed >> absmax >> nested >> offset;
    EXPECT_EQ(crc(weight.packed), packed) << name;
    EXPECT_EQ(crc(weight.absmax), absmax) << name;
    EXPECT_EQ(crc(weight.nested_absmax), nested) << name;
    EXPECT_EQ(weight.offset, offset) << name;
    for (const auto other : {at::kFloat, at::kBFloat16, at::kHalf}) {
      std::uint32_t expected = 0;
      line >> expected;
      EXPECT_EQ(crc(dequantize_nf4(weight, other)), expected) << name << " " << other;
    }
  }
}

TEST(Nf4, OtherDtypesAreRefused) {
  EXPECT_THROWS(quantize_nf4(at::ones({4, 4}, at::kDouble)), UsageError, "float32, bfloat16 or float16");
}

/// The small model of make_nf4.py, in float32.
void save_whole(const std::filesystem::path& folder) {
  testing::write_bytes(folder / "config.json", golden_configs().at("qlora"));
  auto model = AutoModelForCausalLM::from_config(folder);
  fill(*model);
  save_pretrained(model, folder);
}

CausalLM quantized_model(const std::filesystem::path& folder, at::ScalarType dtype = at::kFloat) {
  return AutoModelForCausalLM::from_pretrained(
      folder, {.dtype = dtype, .quantization = Nf4Options{.compute_dtype = dtype}});
}

/// fill() of the adapter alone.
void fill_adapter(torch::nn::Module& model) {
  const at::NoGradGuard no_grad;
  std::vector<std::pair<at::Tensor, at::Tensor>> kept;
  for (const auto& list : {model.named_parameters(), model.named_buffers()}) {
    for (const auto& entry : list)
      if (entry.key().find(".lora_") == std::string::npos)
        kept.emplace_back(entry.value(), entry.value().detach().clone());
  }
  fill(model);
  for (auto& [tensor, value] : kept) tensor.copy_(value);
}

std::vector<std::string> golden_names(const std::string& beginning) {
  std::vector<std::string> names;
  std::ifstream file(LOCKSTEP_GOLDEN_MODELS);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(beginning))
      names.push_back(line.substr(beginning.size(), line.find(' ', beginning.size()) - beginning.size()));
  return names;
}

TEST(Qlora, AFolderIsQuantizedOnLoadingAndSavedAsTransformersDoes) {
  const TemporaryFolder folder;
  save_whole(folder.path());
  auto model = quantized_model(folder.path());
  const at::Tensor tokens = ids(2, 12, 50);
  expect_golden("qlora base", model->forward(tokens));
  save_pretrained(model, folder.path() / "saved");
  const auto saved = load_file(folder.path() / "saved/model.safetensors").tensors;
  const auto names = golden_names("qlora tensor:");
  EXPECT_EQ(saved.size(), names.size());
  for (const auto& name : names) {
    ASSERT_TRUE(saved.contains(name)) << name;
    std::istringstream line(golden_line("qlora", "tensor:" + name));
    std::uint32_t expected = 0;
    line >> expected;
    EXPECT_EQ(crc(saved.at(name)), expected) << name;
  }
  const auto config = Fields::parse(testing::read_bytes(folder.path() / "saved/config.json"));
  EXPECT_EQ(config.at("quantization_config"), Fields::parse(golden_line("qlora", "settings")));
  // That folder is loaded as it is.
  auto again = AutoModelForCausalLM::from_pretrained(folder.path() / "saved");
  EXPECT_TRUE(at::equal(again->forward(tokens), model->forward(tokens)));
}

TEST(Qlora, AnAdapterLearnsAsWithPeft) {
  const TemporaryFolder folder;
  save_whole(folder.path());
  auto model = quantized_model(folder.path());
  add_lora(model, {.r = 4, .lora_alpha = 8, .target_modules = "all-linear"});
  fill_adapter(*model);
  const at::Tensor tokens = ids(2, 12, 50);
  const at::Tensor logits = model->forward(tokens);
  expect_golden("qlora logits", logits);
  const at::Tensor loss = causal_lm_loss(logits, tokens);
  expect_golden("qlora loss", loss);
  loss.backward();
  const auto gradients = golden_names("qlora gradient:");
  EXPECT_EQ(gradients.size(), 28U);
  expect_gradients("qlora", *model, gradients);
  for (const auto& entry : model->named_parameters())
    EXPECT_EQ(entry.value().requires_grad(), entry.key().find(".lora_") != std::string::npos) << entry.key();
  // Merged into dequantized weights, which are a usual model.
  const TemporaryFolder merged;
  merge_lora(model);
  EXPECT_TRUE(at::allclose(model->forward(tokens), logits, 1e-4, 1e-4));
  save_pretrained(model, merged.path());
  EXPECT_FALSE(
      Fields::parse(testing::read_bytes(merged.path() / "config.json")).contains("quantization_config"));
  EXPECT_TRUE(at::equal(AutoModelForCausalLM::from_pretrained(merged.path())->forward(tokens),
                        model->forward(tokens)));
}

/// Four bits a weight, and a byte for 64.
TEST(Qlora, WeightsTakeLittleMemory) {
  const TemporaryFolder folder;
  save_whole(folder.path());
  auto model = quantized_model(folder.path(), at::kBFloat16);
  std::size_t bytes = 0, whole = 0;
  for (const auto& entry : model->named_parameters()) {
    if (entry.key().find("proj.weight") == std::string::npos) continue;
    bytes += entry.value().nbytes();
    if (entry.value().dim() == 2) whole += static_cast<std::size_t>(entry.value().numel()) * 2 * 2;
  }
  // 4 bits for 16, and a byte of scale for 64 weights.
  EXPECT_EQ(bytes, whole / 4 + whole / 128);
}

TEST(Qlora, WhatCannotBeQuantizedIsNamed) {
  const TemporaryFolder folder;
  save_whole(folder.path());
  const auto changed = [&](const Fields& settings) {
    Fields config = Fields::parse(golden_configs().at("qlora"));
    config["quantization_config"] = settings;
    testing::write_bytes(folder.path() / "config.json", config.dump());
    return AutoModelForCausalLM::from_pretrained(folder.path());
  };
  EXPECT_THROWS(changed({{"quant_method", "gptq"}}), DataError, "'quantization_config'",
                "nf4 of bitsandbytes");
  EXPECT_THROWS(changed({{"quant_method", "bitsandbytes"}, {"load_in_8bit", true}}), DataError,
                "load_in_4bit");
  const Fields nf4 = {
      {"quant_method", "bitsandbytes"}, {"load_in_4bit", true}, {"bnb_4bit_quant_type", "nf4"}};
  EXPECT_THROWS(changed(nf4), DataError, "q_proj.weight");
  Fields skips = nf4;
  skips["llm_int8_skip_modules"] = {"q_proj"};
  EXPECT_THROWS(changed(skips), DataError, "llm_int8_skip_modules");
  // Converted weights are refused, not used.
  save_whole(folder.path());
  auto model = quantized_model(folder.path());
  model->to(at::kBFloat16);
  EXPECT_THROWS(model->forward(ids(1, 4, 50)), UsageError, "converted by to()");
}

// ---- Data parallelism

std::vector<at::Tensor> trained_of_qlora(const CausalLM& model) {
  std::vector<at::Tensor> trained;
  for (auto& parameter : model->parameters())
    if (parameter.requires_grad()) trained.push_back(parameter);
  return trained;
}

const auto qlora_loss = [](auto& model, int rank, int step) {
  const at::Tensor tokens = at::arange(16).mul(rank + 3).add(step).remainder(47).view({2, 8});
  const auto losses = model(LabelledTexts{.input_ids = tokens, .labels = tokens});
  return losses.loss_sum / losses.loss_weight;
};

/// An adapter to begin with. The ranks are threads, which would draw from one generator.
void save_first_adapter(const std::filesystem::path& base, const std::filesystem::path& folder) {
  auto model = quantized_model(base);
  add_lora(model, {.r = 2, .lora_alpha = 4, .target_modules = "all-linear"});
  fill_adapter(*model);
  save_adapter(model, folder);
}

/// The adapter in `folder`/adapter after some steps; `wrap` returns what is trained.
template <class Wrap>
std::string trained_qlora(const std::filesystem::path& folder, const ProcessGroup& group, bool divided,
                          int rank, const Wrap& wrap) {
  std::optional<ShardedInit> init;
  if (divided) init.emplace(group);
  auto model = quantized_model(folder, at::kBFloat16);
  load_adapter(model, folder / "adapter");
  init.reset();
  auto trained = TokenLossModel(model);
  auto wrapped = wrap(trained);
  testing::losses_of(
      wrapped, trained_of_qlora(model), [&](auto& net, int step) { return qlora_loss(net, rank, step); }, 2);
  const TemporaryFolder out;
  if constexpr (requires { wrapped.full_parameters(); }) {
    const auto whole = wrapped.full_parameters();
    save_adapter(model, out.path());
  } else {
    save_adapter(model, out.path());
  }
  return testing::read_bytes(out.path() / kAdapterFileName);
}

TEST(QloraInParallel, DdpFsdpAndOneRankTrainTheSameAdapterBitForBit) {
  const TemporaryFolder folder;
  save_whole(folder.path());
  save_first_adapter(folder.path(), folder.path() / "adapter");
  const auto ddp = [&](const ProcessGroup& group, int rank) {
    return trained_qlora(folder.path(), group, false, rank,
                         [&](auto& model) { return DistributedDataParallel<TokenLossModel>(model, group); });
  };
  const auto fsdp = [&](const ProcessGroup& group, bool divided, int rank) {
    return trained_qlora(folder.path(), group, divided, rank,
                         [&](auto& model) { return fully_shard(model, group); });
  };
  std::string alone;
  testing::run_group(1, [&](const ProcessGroup& group) { alone = ddp(group, 0); });
  testing::run_group(2, [&](const ProcessGroup& group) {
    EXPECT_EQ(ddp(group, 0), alone);
    EXPECT_EQ(fsdp(group, false, 0), alone);
    EXPECT_EQ(fsdp(group, true, 0), alone);
    EXPECT_EQ(fsdp(group, false, group.rank()), ddp(group, group.rank()));
  });
}

}  // namespace
}  // namespace lockstep::models
