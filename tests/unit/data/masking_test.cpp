#include "lockstep/data/masking.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"
#include "lockstep/data/data_loader.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using nlohmann::json;

at::Tensor tensor_of(const json& rows) {
  std::vector<at::Tensor> tensors;
  for (const auto& row : rows) tensors.push_back(torch::tensor(row.get<std::vector<std::int64_t>>()));
  return torch::stack(tensors);
}

MaskingOptions options_of(const json& given) {
  MaskingOptions options{.mask_token_id = 4, .vocab_size = 97};
  options.mlm_probability = given.value("mlm_probability", options.mlm_probability);
  options.mask_replace_prob = given.value("mask_replace_prob", options.mask_replace_prob);
  options.random_replace_prob = given.value("random_replace_prob", options.random_replace_prob);
  options.whole_word_mask = given.value("whole_word_mask", false);
  return options;
}

at::Generator seeded_generator(std::uint64_t seed) { return at::make_generator<at::CPUGeneratorImpl>(seed); }

TEST(Masking, DrawsWhatTransformersDraws) {
  std::ifstream file(LOCKSTEP_MASKING_GOLDEN);
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    const json golden = json::parse(line);
    const auto result =
        mask_tokens(tensor_of(golden["ids"]), tensor_of(golden["special"]), options_of(golden["options"]),
                    seeded_generator(golden["seed"]), tensor_of(golden["words"]));
    EXPECT_TRUE(torch::equal(result.input_ids, tensor_of(golden["inputs"]))) << golden["options"];
    EXPECT_TRUE(torch::equal(result.labels, tensor_of(golden["labels"]))) << golden["options"];
  }
  EXPECT_EQ(cases, 8);
}

std::shared_ptr<const Dataset> texts() {
  const at::Tensor ids = torch::arange(12 * 20).remainder(90).add(5).view({12, 20});
  ids.select(1, 0).fill_(2);
  return std::make_shared<TensorDataset>(
      Batch{{"input_ids", ids}, {"attention_mask", torch::ones_like(ids)}});
}

std::map<std::int64_t, at::Tensor> epoch_of(DataLoader& loader) {
  std::map<std::int64_t, at::Tensor> rows;
  for (auto& batch : loader)
    for (std::int64_t row = 0; row < batch.size(); ++row)
      rows[batch.indices[static_cast<std::size_t>(row)]] =
          torch::cat({batch["input_ids"][row], batch["labels"][row]});
  return rows;
}

/// Whatever the batch, the workers and the ranks; and others in the next epoch.
TEST(Masking, ASamplesMasksDependOnTheEpochAlone) {
  const auto data = masked(
      texts(), {.mask_token_id = 4, .vocab_size = 97, .mlm_probability = 0.4, .special_token_ids = {2, 3}});
  DataLoader one(data, {.batch_size = 3, .shuffle = true, .seed = 7});
  DataLoader other =
      DataLoader(data, {.batch_size = 2, .shuffle = true, .num_workers = 2, .seed = 7}).shard(2, 1);
  const auto first = epoch_of(one), second = epoch_of(one), part = epoch_of(other);
  ASSERT_EQ(first.size(), 12U);
  ASSERT_EQ(part.size(), 6U);
  for (const auto& [index, row] : part) EXPECT_TRUE(torch::equal(row, first.at(index))) << index;
  bool differ = false;
  for (const auto& [index, row] : first) {
    differ = differ || !torch::equal(row, second.at(index));
    EXPECT_EQ(row[0].item<std::int64_t>(), 2);
    EXPECT_EQ(row[20].item<std::int64_t>(), -100);
  }
  EXPECT_TRUE(differ);
}

/// A batch is padded to its longest text, and which texts share a batch depends on the ranks.
TEST(Masking, PaddingIsNotMaskedAndChangesNoMask) {
  const auto padded_to = [](std::int64_t length) {
    const at::Tensor mask = torch::arange(length).lt(torch::tensor({12, 7, 3}).unsqueeze(1)).to(at::kLong);
    const at::Tensor ids = torch::arange(length).add(5).mul(mask);
    return masked(std::make_shared<TensorDataset>(Batch{{"input_ids", ids}, {"attention_mask", mask}}),
                  {.mask_token_id = 4, .vocab_size = 97, .mlm_probability = 0.6});
  };
  for (std::int64_t row = 0; row < 3; ++row) {
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      const Example shorter = padded_to(12)->get(row, {seed}), longer = padded_to(20)->get(row, {seed});
      for (const auto* name : {"input_ids", "labels"}) {
        EXPECT_TRUE(torch::equal(shorter[name], longer[name].narrow(0, 0, 12))) << name << " " << seed;
      }
      const at::Tensor padding = longer["attention_mask"].eq(0);
      EXPECT_TRUE(longer["input_ids"].masked_select(padding).eq(0).all().item<bool>());
      EXPECT_TRUE(longer["labels"].masked_select(padding).eq(-100).all().item<bool>());
    }
  }
}

TEST(Masking, WrongOptionsAreRefused) {
  const auto ids = torch::ones({2, 3}, at::kLong);
  const MaskingOptions good{.mask_token_id = 4, .vocab_size = 97};
  const auto with = [&](const std::function<void(MaskingOptions&)>& change) {
    MaskingOptions options = good;
    change(options);
    mask_tokens(ids, torch::zeros_like(ids), options, seeded_generator(1));
  };
  EXPECT_THROWS(with([](auto& o) { o.mlm_probability = 1.5; }), UsageError, "mlm_probability is 1.5");
  EXPECT_THROWS(with([](auto& o) { o.random_replace_prob = 0.5; }), UsageError, "random_replace_prob");
  EXPECT_THROWS(with([](auto& o) { o.mask_token_id = 97; }), UsageError, "not in a vocabulary of 97");
  EXPECT_THROWS(with([](auto& o) { o.whole_word_mask = true; }), UsageError, "word_ids");
  EXPECT_THROWS(mask_tokens(ids, torch::zeros({3}), good, seeded_generator(1)), UsageError,
                "special_tokens_mask");
  EXPECT_THROWS(mask_tokens(ids.to(at::kFloat), ids, good, seeded_generator(1)), UsageError, "int64");
}

}  // namespace
}  // namespace lockstep
