#include "kernels/embedding.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/train/mixed_precision.hpp"
#include "support/throws.hpp"
#include "unit/kernels/emulated_kernels.hpp"
#include "unit/kernels/float64.hpp"

namespace lockstep::kernels {
namespace {

EmbeddingIds ids_of_two_texts() {
  const auto of = [](at::ArrayRef<std::int64_t> ids) { return at::tensor(ids, at::kLong).view({2, 3}); };
  return {.words = of({3, 0, 3, 6, 1, 3}), .types = of({0, 1, 1, 0, 0, 1})};
}

struct Tables {
  at::Tensor words = drawn({7, 516}), places = drawn({5, 516}), types = drawn({2, 516});
};

/// With types, of one type, and without types.
TEST(FusedEmbedding, HasLibTorchsBits) {
  torch::manual_seed(1);
  const Tables tables;
  testing::EmulatedKernels device;
  device.require_proof();
  const Autocast cast(at::kCPU, MixedPrecision::bf16);
  for (const int way : {0, 1, 2}) {
    EmbeddingIds ids = ids_of_two_texts();
    if (way > 0) ids.types = at::Tensor();
    ids.padding = way == 1 ? 3 : -1;
    EmbeddingTables given{.words = tables.words, .places = tables.places};
    if (way < 2) given.types = tables.types;
    ASSERT_TRUE(takes_embedding(ids, given)) << way;
    at::Tensor exact = at::embedding(tables.words, ids.words, ids.padding);
    if (way < 2)
      exact =
          exact + at::embedding(tables.types, ids.types.defined() ? ids.types : at::zeros_like(ids.words));
    exact = exact + at::embedding(tables.places, at::arange(3));
    const at::Tensor got = embed_tokens(ids, given), factor = torch::randn(exact.sizes());
    EXPECT_TRUE(at::equal(got, exact)) << way;
    std::vector<at::Tensor> inputs{tables.words, tables.places};
    if (way < 2) inputs.push_back(tables.types);
    const auto theirs = torch::autograd::grad({exact}, inputs, {factor}),
               ours = torch::autograd::grad({got}, inputs, {factor});
    for (std::size_t i = 0; i < inputs.size(); ++i)
      EXPECT_TRUE(at::allclose(ours[i], theirs[i], 1e-5, 1e-6)) << way << ", gradient " << i;
  }
}

TEST(FusedEmbedding, OfManyTokensHasTheGradientOfLibTorchs) {
  testing::EmulatedKernels device;
  const Autocast cast(at::kCPU, MixedPrecision::bf16);
  const EmbeddingTables tables{.words = drawn({7, 4}), .places = drawn({4097, 4})};
  const EmbeddingIds ids{.words = at::arange(2 * 4097).remainder(7).view({2, 4097})};
  ASSERT_TRUE(takes_embedding(ids, tables));
  embed_tokens(ids, tables).sum().backward();
  EXPECT_FALSE(device.launches().contains("word_gradients<float>"));
  EXPECT_EQ(tables.words.grad().sum().item<double>(), 2 * 4097 * 4);
}

TEST(FusedEmbedding, OfOthersIsLibTorchs) {
  testing::EmulatedKernels device;
  const Autocast cast(at::kCPU, MixedPrecision::bf16);
  const at::Tensor ids = ids_of_two_texts().words, words = at::ones({7, 8}), places = at::ones({5, 8});
  const EmbeddingTables tables{.words = words, .places = places};
  EXPECT_TRUE(takes_embedding({ids}, tables));
  EXPECT_TRUE(takes_embedding({ids.t()}, tables));
  EXPECT_FALSE(takes_embedding({ids.to(at::kInt)}, tables));
  EXPECT_FALSE(takes_embedding({ids[0]}, tables));
  EXPECT_FALSE(takes_embedding({ids, ids.t()}, tables));
  EXPECT_FALSE(takes_embedding({ids}, {.words = words, .places = places.narrow(0, 0, 2)}));
  EXPECT_FALSE(takes_embedding({ids}, {.words = at::ones({7, 6}), .places = at::ones({5, 6})}));
  EXPECT_FALSE(takes_embedding({ids}, {.words = words.to(at::kDouble), .places = places}));
  EXPECT_FALSE(takes_embedding({ids}, {.words = words, .places = places, .types = at::ones({9, 8})}));
  const Autocast off(at::kCPU, MixedPrecision::no);
  EXPECT_FALSE(takes_embedding({ids}, tables));
}

TEST(FusedEmbedding, RefusesWhatIsNoWordAndSecondDerivatives) {
  testing::EmulatedKernels device;
  const EmbeddingTables tables{.words = drawn({7, 8}), .places = drawn({5, 8}), .types = drawn({2, 8})};
  EXPECT_THROWS(embed_tokens({at::full({1, 2}, 7, at::kLong)}, tables), std::invalid_argument,
                "number of words");
  const at::Tensor ids = ids_of_two_texts().words;
  EXPECT_THROWS(embed_tokens({ids, ids}, tables), std::invalid_argument, "a type");
  EXPECT_THROWS(torch::autograd::grad({embed_tokens({ids}, tables).sum()}, {tables.words}, {}, {},
                                      /*create_graph=*/true),
                UsageError, "second derivatives");
}

}  // namespace
}  // namespace lockstep::kernels
