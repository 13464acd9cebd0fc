#include "kernels/embedding.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>

#include "kernels/aligned.hpp"
#include "kernels/column_sums.hpp"
#include "kernels/cuda_kernel.hpp"
#include "kernels/fused_kernels.hpp"
#include "kernels/kernel_arguments.hpp"
#include "kernels/no_second_derivatives.hpp"
#include "kernels/remembered.hpp"
#include "kernels/self_check.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::kernels {
namespace {

constexpr int kEmbeddingThreads = 128, kWordThreads = 256, kTypeThreads = 256;
/// Values that a thread reads at once, columns of a block of type_gradients, and its rows at least.
constexpr std::int64_t kEmbeddingPack = 4, kTypeColumns = 128, kTypeRows = 32;
/// Each first token of a word looks at all tokens: for more, LibTorch sorts them.
constexpr std::int64_t kMostTokens = 8192;

const CudaKernel* embedding_kernel(const char* name, const at::Device& device) {
  return find_kernel("embedding", std::string(name) + "<float>", device);
}

at::Tensor gradient_by_words(const at::Tensor& gradient, const at::Tensor& ids, std::int64_t words,
                             std::int64_t padding) {
  if (ids.numel() > kMostTokens)
    return at::embedding_dense_backward(gradient, ids, words, padding, /*scale_grad_by_freq=*/false);
  const auto width = gradient.size(2);
  at::Tensor result = at::zeros({words, width}, gradient.options());
  embedding_kernel("word_gradients", ids.device())
      ->launch({.blocks = ids.numel(), .threads = kWordThreads}, ids.const_data_ptr(),
               gradient.const_data_ptr(), result.mutable_data_ptr(), ids.numel(), padding,
               static_cast<int>(width));
  return result;
}

at::Tensor gradient_by_places(const at::Tensor& gradient, std::int64_t places) {
  const auto width = gradient.size(2);
  at::Tensor result = at::empty({places, width}, gradient.options());
  embedding_kernel("place_gradients", gradient.device())
      ->launch({.blocks = places, .threads = kEmbeddingThreads}, gradient.const_data_ptr(),
               result.mutable_data_ptr(), gradient.size(0), gradient.size(1), static_cast<int>(width));
  return result;
}

/// `ids`: undefined for type 0.
at::Tensor gradient_by_types(const at::Tensor& gradient, const at::Tensor& ids, std::int64_t types) {
  const auto rows = gradient.size(0) * gradient.size(1), width = gradient.size(2);
  const auto tiles = types * ((width + kTypeColumns - 1) / kTypeColumns);
  const auto parts = std::clamp<std::int64_t>(4 * multiprocessors(gradient.device()) / tiles, 1,
                                              (rows + kTypeRows - 1) / kTypeRows);
  const PartialSums sums(gradient.device(), parts, types * width, tiles);
  embedding_kernel("type_gradients", gradient.device())
      ->launch({.blocks = tiles, .threads = kTypeThreads, .blocks_y = static_cast<int>(parts)}, data_of(ids),
               gradient.const_data_ptr(), sums.argument(), rows, static_cast<int>(width),
               static_cast<int>(types));
  return sums.totals().view({types, width});
}

class FusedEmbedding : public torch::autograd::Function<FusedEmbedding> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& words,
                            const at::Tensor& places, const std::optional<at::Tensor>& given_types,
                            const EmbeddingIds& ids) {
    const at::Tensor types = given_types.value_or(at::Tensor()), dense = ids.words.contiguous(),
                     type_ids = ids.types.defined() ? ids.types.contiguous() : at::Tensor();
    const auto width = words.size(1);
    const std::int64_t type_count = types.defined() ? types.size(0) : 0;
    const at::Tensor result =
        at::empty({dense.size(0), dense.size(1), width}, words.options().requires_grad(false));
    embedding_kernel("embed_tokens", dense.device())
        ->launch({.blocks = dense.numel(), .threads = kEmbeddingThreads}, dense.const_data_ptr(),
                 data_of(type_ids), words.const_data_ptr(), data_of(types), places.const_data_ptr(),
                 result.mutable_data_ptr(), words.size(0), type_count, dense.size(1),
                 static_cast<int>(width));
    context->save_for_backward({dense, type_ids});
    context->saved_data["words"] = words.size(0);
    context->saved_data["places"] = places.size(0);
    context->saved_data["types"] = type_count;
    context->saved_data["padding"] = ids.padding;
    return result;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    refuse_second_derivatives("embeddings");
    const auto saved = context->get_saved_variables();
    auto& data = context->saved_data;
    const at::Tensor gradient = readable(gradients[0], at::kFloat);
    at::Tensor by_words, by_places, by_types;
    if (context->needs_input_grad(0))
      by_words = gradient_by_words(gradient, saved[0], data["words"].toInt(), data["padding"].toInt());
    if (context->needs_input_grad(1)) by_places = gradient_by_places(gradient, data["places"].toInt());
    const auto types = data["types"].toInt();
    // Only tensors that were given are counted.
    if (types > 0 && context->needs_input_grad(2)) by_types = gradient_by_types(gradient, saved[1], types);
    return {by_words, by_places, by_types, {}};
  }
};

at::Tensor fused(const EmbeddingIds& ids, const EmbeddingTables& tables) {
  return FusedEmbedding::apply(tables.words, tables.places,
                               tables.types.defined() ? std::optional(tables.types) : std::nullopt, ids);
}

at::Tensor composed(const EmbeddingIds& ids, const Tensors& tables) {
  at::Tensor sum = at::embedding(tables[0], ids.words, ids.padding);
  if (tables.size() > 2) sum = sum + at::embedding(tables[2], ids.types);
  return sum + tables[1].narrow(0, 0, ids.words.size(1));
}

/// Of several texts with more tokens than a block looks at at once, words that occur again, more columns than
/// a block takes at a time, and places that no text has.
void check_embedding(const at::Device& device) {
  constexpr std::int64_t kWords = 97, kPlaces = 145, kWidth = 516, kTypes = 2;
  const auto numbers = at::arange(280, at::TensorOptions(at::kLong).device(device));
  const EmbeddingIds ids{.words = numbers.mul(numbers).remainder(kWords).view({2, 140}),
                         .types = numbers.remainder(kTypes).view({2, 140}),
                         .padding = 4};
  const at::Tensor words = waves({kWords, kWidth}, at::kFloat, device, 1),
                   places = waves({kPlaces, kWidth}, at::kFloat, device, 2),
                   types = waves({kTypes, kWidth}, at::kFloat, device, 3);
  compare({.inputs = {words, places, types},
           .fused =
               [&](const Tensors& given) {
                 const at::Tensor got =
                     fused(ids, {.words = given[0], .places = given[1], .types = given[2]});
                 if (!at::equal(got, composed(ids, given)))
                   throw Error("some sums differ; all have the bits of LibTorch's");
                 return Tensors{got};
               },
           .reference = [&](const Tensors& given) { return Tensors{composed(ids, given)}; },
           .tolerance = 1e-5});
  compare(
      {.inputs = {words, places},
       .fused =
           [&](const Tensors& given) { return Tensors{fused(ids, {.words = given[0], .places = given[1]})}; },
       .reference = [&](const Tensors& given) { return Tensors{composed(ids, given)}; },
       .tolerance = 1e-5});
}

bool is_taken(const at::Tensor& ids, const at::Device& device) {
  return ids.scalar_type() == at::kLong && ids.dim() == 2 && ids.device() == device;
}

}  // namespace

bool takes_embedding(const EmbeddingIds& ids, const EmbeddingTables& tables) {
  const auto device = ids.words.device();
  if (!fused_dtype(tables.words) || !is_taken(ids.words, device) || ids.words.numel() == 0) return false;
  if (ids.types.defined() && (!is_taken(ids.types, device) || ids.types.sizes() != ids.words.sizes()))
    return false;
  const auto width = tables.words.size(-1);
  const auto fits = [&](const at::Tensor& table) {
    return table.scalar_type() == at::kFloat && table.dim() == 2 && table.is_contiguous() &&
           is_aligned(table) && table.device() == device && table.size(1) == width;
  };
  const bool has_types = tables.types.defined();
  if (!fits(tables.words) || !fits(tables.places) || (has_types && !fits(tables.types))) return false;
  if (width % kEmbeddingPack != 0 || width > std::numeric_limits<int>::max() / 64) return false;
  // Each type has blocks of its own.
  if (ids.words.size(1) > tables.places.size(0) || (has_types && tables.types.size(0) > 8)) return false;
  thread_local Remembered<bool, int> known;
  return known.get({device.index()}, [&] {
    return std::ranges::all_of(
               std::array{"embed_tokens", "word_gradients", "place_gradients", "type_gradients"},
               [&](const char* name) { return embedding_kernel(name, device) != nullptr; }) &&
           is_proven("embeddings", device, [&] { check_embedding(device); });
  });
}

at::Tensor embed_tokens(const EmbeddingIds& ids, const EmbeddingTables& tables) { return fused(ids, tables); }

}  // namespace lockstep::kernels
