// The same kernels with every float a double: their gradients are those that differences of their results
// give, which tells a wrong formula from rounding. All run on the emulator under AddressSanitizer, with
// buffers that end where the tensors end. Without LibTorch.

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "support/block_emulator.hpp"

namespace lockstep::testing::emulated {

#include "kernels/cuda/arguments.cu"
#include "kernels/cuda/prelude.cu"
// The kernels.
#include "kernels/cuda/add_norm.cu"
#include "kernels/cuda/column_sums.cu"
#include "kernels/cuda/column_totals.cu"
#include "kernels/cuda/cross_entropy.cu"
#include "kernels/cuda/embedding.cu"
#include "kernels/cuda/gated.cu"
#include "kernels/cuda/rms_norm.cu"
#include "kernels/cuda/rope.cu"

}  // namespace lockstep::testing::emulated

// NOLINTBEGIN
#define float double
#define rsqrtf(value) (1.0 / std::sqrt(value))
#define erff(value) std::erf(value)
#define tanhf(value) std::tanh(value)
#define logf(value) std::log(value)
#define fmaf(a, b, c) std::fma(a, b, c)
#define fmaxf(a, b) std::fmax(a, b)
// NOLINTEND

namespace lockstep::testing::in_double {

#include "kernels/cuda/arguments.cu"
#include "kernels/cuda/prelude.cu"
// The kernels.
#include "kernels/cuda/add_norm.cu"
#include "kernels/cuda/batch_norm.cu"
#include "kernels/cuda/column_sums.cu"
#include "kernels/cuda/cross_entropy.cu"
#include "kernels/cuda/embedding.cu"
#include "kernels/cuda/gated.cu"
#include "kernels/cuda/rms_norm.cu"
#include "kernels/cuda/rope.cu"

}  // namespace lockstep::testing::in_double

#undef float
#undef rsqrtf
#undef erff
#undef tanhf
#undef logf
#undef fmaf
#undef fmaxf

namespace lockstep::testing {
namespace {

/// Aligned as a tensor's memory, and not a byte longer than its elements.
template <class T>
class Buffer {
 public:
  explicit Buffer(std::size_t size, T value = T()) : size_(size) {
    void* memory = nullptr;
    if (posix_memalign(&memory, 64, size * sizeof(T)) != 0) throw std::bad_alloc();
    elements_.reset(static_cast<T*>(memory));
    std::fill_n(elements_.get(), size, value);
  }
  T* get() const { return elements_.get(); }
  T& operator[](std::size_t at) const { return elements_[at]; }
  std::size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(T* memory) const { std::free(memory); }
  };
  std::size_t size_;
  std::unique_ptr<T[], Free> elements_;
};

using Numbers = Buffer<double>;

/// Irregular, between -2 and 2.
template <class T = double, class Make>
Buffer<T> waves_as(std::size_t size, double phase, const Make& make) {
  Buffer<T> values(size);
  for (std::size_t i = 0; i < size; ++i) {
    const auto x = static_cast<double>(i);
    values[i] = make(2 * std::sin(x * x * 0.137 + x * 0.71 + phase));
  }
  return values;
}
Numbers waves(std::size_t size, double phase) {
  return waves_as(size, phase, [](double value) { return value; });
}

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const Dimensions& grid, unsigned threads, Arguments... arguments) {
  static BlockEmulator emulator(7);
  emulator.run(grid, threads, [&] { kernel(arguments...); });
}

/// An input of an operation, and its gradient by the operation's own kernel.
struct Input {
  const Numbers* values;
  const Numbers* gradient;
};

/// `loss`: the sum of the results, each times a number. At most some 16 elements of each input are compared.
void expect_gradients(const std::function<double()>& loss, const std::vector<Input>& inputs) {
  constexpr double kStep = 1e-5;
  for (std::size_t which = 0; which < inputs.size(); ++which) {
    const auto& [values, gradient] = inputs[which];
    ASSERT_EQ(values->size(), gradient->size());
    const std::size_t stride = values->size() / 16 + 1;
    for (std::size_t i = 0; i < values->size(); i += stride) {
      const double before = (*values)[i];
      (*values)[i] = before + kStep;
      const double above = loss();
      (*values)[i] = before - kStep;
      const double below = loss();
      (*values)[i] = before;
      const double expected = (above - below) / (2 * kStep);
      // Some constants of the kernels are rounded to float.
      EXPECT_NEAR((*gradient)[i], expected, 1e-6 * (1 + std::abs(expected)))
          << "input " << which << ", element " << i;
    }
  }
}

double product(const Numbers& results, const Numbers& factors) {
  double sum = 0;
  for (std::size_t i = 0; i < results.size(); ++i) sum += results[i] * factors[i];
  return sum;
}

/// That a kernel's own blocks add, in groups of two.
struct Sums {
  Sums(int parts, int width, int tiles = 1)
      : partial(static_cast<std::size_t>(parts) * width),
        totals(width),
        counters(static_cast<std::size_t>(tiles) * ((parts + 1) / 2 + 1), 0) {}
  in_double::BlockSums argument() const { return {partial.get(), totals.get(), counters.get(), 2}; }
  void expect_no_counts() const {
    EXPECT_EQ(std::accumulate(counters.get(), counters.get() + counters.size(), 0U), 0U);
  }
  Numbers partial, totals;
  Buffer<unsigned> counters;
};

template <int packs, bool has_branch>
void check_layer_norm(int rows, int width) {
  const std::size_t size = static_cast<std::size_t>(rows) * width;
  const auto residual = waves(size, 1), branch = waves(size, 2), gamma = waves(width, 3),
             beta = waves(width, 4);
  const auto of_sum = waves(size, 5), of_narrow = waves(size, 6), of_wide = waves(size, 7);
  Numbers sum(size), narrow(size), wide(size), means(rows), inverses(rows);
  const double* added = has_branch ? branch.get() : nullptr;
  const unsigned blocks = rows, threads = 32;
  const auto forward = [&] {
    launch(&in_double::add_norm<double, packs>, {blocks}, threads, residual.get(), added, sum.get(),
           narrow.get(), wide.get(), gamma.get(), beta.get(), means.get(), inverses.get(), width, 1e-3);
    return product(sum, of_sum) + product(narrow, of_narrow) + product(wide, of_wide);
  };
  forward();
  constexpr int kSums = has_branch ? 3 : 2;
  Numbers by_residual(size), by_branch(size);
  // Two rows of a block, the last one without its second.
  constexpr int kBlocks = 3;
  const Sums sums(kBlocks, kSums * width);
  launch(&in_double::add_norm_backward<double, packs, has_branch>, {kBlocks}, 2 * threads, of_narrow.get(),
         of_wide.get(), of_sum.get(), sum.get(), gamma.get(), means.get(), inverses.get(), by_residual.get(),
         by_branch.get(), sums.argument(), rows, width, static_cast<int>(threads));
  sums.expect_no_counts();
  Numbers by_gamma(width), by_beta(width);
  std::copy_n(sums.totals.get(), width, by_gamma.get());
  std::copy_n(sums.totals.get() + width, width, by_beta.get());
  std::vector<Input> inputs{{&residual, &by_residual}, {&gamma, &by_gamma}, {&beta, &by_beta}};
  if (has_branch) inputs.push_back({&branch, &by_branch});
  expect_gradients(forward, inputs);
  // Of a bias that was added to the branch.
  for (int column = 0; has_branch && column < width; ++column) {
    double exact = 0;
    for (int row = 0; row < rows; ++row) exact += by_branch.get()[row * width + column];
    EXPECT_NEAR(sums.totals[2 * width + column], exact, 1e-12);
  }
}

TEST(KernelGradients, OfLayerNorms) {
  check_layer_norm<1, true>(9, 12);
  check_layer_norm<1, false>(5, 8);
  check_layer_norm<2, true>(5, 132);
}

/// A row has `lanes` threads.
template <int packs>
void check_rms_norm(int rows, int width, int lanes, double offset) {
  const std::size_t size = static_cast<std::size_t>(rows) * width;
  const auto residual = waves(size, 1), branch = waves(size, 2), scale = waves(width, 3);
  const auto of_sum = waves(size, 5), of_normed = waves(size, 6);
  const in_double::RmsWeight weight{scale.get(), nullptr, offset};
  Numbers sum(size), normed(size), inverses(rows);
  const unsigned threads = 64, at_a_time = threads / lanes, blocks = (rows + at_a_time - 1) / at_a_time;
  const auto forward = [&] {
    launch(&in_double::rms_norm<double, double, packs>, {blocks}, threads, residual.get(), branch.get(),
           sum.get(), normed.get(), weight, inverses.get(), rows, width, lanes, 1e-3);
    return product(sum, of_sum) + product(normed, of_normed);
  };
  forward();
  Numbers by_residual(size), by_branch(size);
  const Sums sums(3, width);
  launch(&in_double::rms_norm_backward<double, double, packs>, {3}, 128, of_normed.get(), of_sum.get(),
         sum.get(), weight, inverses.get(), by_residual.get(), by_branch.get(), sums.argument(), rows, width,
         lanes);
  expect_gradients(forward, {{&residual, &by_residual}, {&branch, &by_branch}, {&scale, &sums.totals}});
}

TEST(KernelGradients, OfRootMeanSquareNorms) {
  check_rms_norm<1>(14, 12, 32, 0);
  check_rms_norm<2>(5, 132, 32, 1);
  check_rms_norm<2>(7, 264, 64, 1);
}

TEST(KernelGradients, OfRotaryPositions) {
  constexpr int kRows = 2, kTokens = 2, kQueries = 2, kKeys = 1, kSize = 24, kRotated = 16;
  const std::size_t queries = kRows * kTokens * kQueries * kSize, keys = kRows * kTokens * kKeys * kSize;
  const auto query = waves(queries, 1), key = waves(keys, 2), of_query = waves(queries, 3),
             of_key = waves(keys, 4);
  Numbers cosines(kTokens * kRotated), sines(kTokens * kRotated);
  for (int i = 0; i < kTokens * kRotated; ++i) {
    const double angle = i / kRotated + 0.3 * (i % (kRotated / 2));
    cosines[i] = std::cos(angle), sines[i] = std::sin(angle);
  }
  const in_double::RopeShape shape{kRows,
                                   kTokens,
                                   {kTokens * kQueries * kSize, kSize, kQueries * kSize},
                                   {kTokens * kKeys * kSize, kSize, kKeys * kSize},
                                   0,
                                   kQueries,
                                   kKeys,
                                   kSize,
                                   kRotated};
  const auto turn = [&](const Numbers& q, const Numbers& k, const Numbers& to_q, const Numbers& to_k,
                        double way) {
    launch(&in_double::rope<double, double>, {1}, 256, q.get(), k.get(), to_q.get(), to_k.get(),
           cosines.get(), sines.get(), shape, way);
  };
  Numbers turned_query(queries), turned_key(keys), by_query(queries), by_key(keys);
  turn(of_query, of_key, by_query, by_key, -1);
  expect_gradients(
      [&] {
        turn(query, key, turned_query, turned_key, 1);
        return product(turned_query, of_query) + product(turned_key, of_key);
      },
      {{&query, &by_query}, {&key, &by_key}});
}

template <int activation>
void check_gate() {
  constexpr int kRows = 3, kWidth = 6;
  // Halves of one product.
  const auto both = waves(kRows * 2 * kWidth, 1), factors = waves(kRows * kWidth, 2);
  Numbers results(kRows * kWidth), by_both(kRows * 2 * kWidth);
  const in_double::GateStrides strides{2 * kWidth, 2 * kWidth};
  launch(&in_double::gated_backward<double, activation>, {1}, 64, factors.get(), both.get(),
         both.get() + kWidth, by_both.get(), by_both.get() + kWidth, strides, 2 * kWidth, kRows, kWidth);
  expect_gradients(
      [&] {
        launch(&in_double::gated<double, activation>, {1}, 64, both.get(), both.get() + kWidth, results.get(),
               strides, kRows, kWidth);
        return product(results, factors);
      },
      {{&both, &by_both}});
}

TEST(KernelGradients, OfGates) {
  check_gate<in_double::kGateSilu>();
  check_gate<in_double::kGateGelu>();
  check_gate<in_double::kGateGeluTanh>();
}

template <bool by_tanh>
void check_gelu() {
  constexpr int kRows = 5, kWidth = 8;
  // What the activation is of is a bias added to a product.
  const auto inputs = waves(kRows * kWidth, 1), factors = waves(kRows * kWidth, 2), bias = waves(kWidth, 3);
  Numbers values(kRows * kWidth), results(kRows * kWidth), by_values(kRows * kWidth);
  const Sums sums(3, kWidth);
  const auto forward = [&] {
    for (int i = 0; i < kRows * kWidth; ++i) values[i] = inputs[i] + bias[i % kWidth];
    launch(&in_double::gelu_forward<double, by_tanh>, {1}, 256, values.get(), results.get(), kRows * kWidth);
    return product(results, factors);
  };
  forward();
  launch(&in_double::gelu_backward<double, by_tanh>, {1, 3}, 256, factors.get(), values.get(),
         by_values.get(), sums.argument(), kRows, kWidth);
  sums.expect_no_counts();
  expect_gradients(forward, {{&inputs, &by_values}, {&bias, &sums.totals}});
}

TEST(KernelGradients, OfGeluAndItsBias) {
  check_gelu<true>();
  check_gelu<false>();
}

void check_cross_entropy(double smoothing) {
  constexpr int kRows = 3, kWords = 5, kStride = 6;
  const auto logits = waves(kRows * kStride, 1);
  Buffer<long long> labels(kRows, -100);
  labels[0] = 4, labels[2] = 0;
  const Numbers factor(1, 1.0);
  Numbers losses(kRows), by_logits(kRows * kStride), sum(1);
  Buffer<long long> count(1);
  Buffer<unsigned> counter(1, 0);
  const in_double::LossTotals totals{sum.get(), count.get(), counter.get()};
  std::copy_n(logits.get(), logits.size(), by_logits.get());
  launch(&in_double::cross_entropy<double, true>, {kRows}, 64, by_logits.get(), labels.get(), losses.get(),
         nullptr, factor.get(), kWords, kStride, -100, smoothing, totals);
  EXPECT_DOUBLE_EQ(sum[0], losses[0] + losses[1] + losses[2]);
  EXPECT_EQ(count[0], 2);
  EXPECT_EQ(counter[0], 0U);
  expect_gradients(
      [&] {
        launch(&in_double::cross_entropy<double, false>, {kRows}, 64, logits.get(), labels.get(),
               losses.get(), nullptr, nullptr, kWords, kStride, -100, smoothing, totals);
        return sum[0];
      },
      {{&logits, &by_logits}});
}

TEST(KernelGradients, OfCrossEntropies) {
  check_cross_entropy(0);
  check_cross_entropy(0.1);
}

TEST(KernelGradients, OfEmbeddings) {
  constexpr int kTexts = 2, kTokens = 3, kPlaces = 5, kWidth = 8, kWords = 7, kTypes = 2,
                kCount = kTexts * kTokens;
  const auto words = waves(kWords * kWidth, 1), places = waves(kPlaces * kWidth, 2),
             types = waves(kTypes * kWidth, 3), factors = waves(kCount * kWidth, 4);
  Buffer<long long> ids(kCount, 6), type_ids(kCount, 1);
  ids[1] = 0, ids[4] = 3, type_ids[2] = type_ids[5] = 0;
  Numbers results(kCount * kWidth), by_words(kWords * kWidth, 0), by_places(kPlaces * kWidth, 9);
  const Sums by_types(3, kTypes * kWidth, kTypes);
  launch(&in_double::word_gradients<double>, {kCount}, 256, ids.get(), factors.get(), by_words.get(), kCount,
         -1, kWidth);
  launch(&in_double::place_gradients<double>, {kPlaces}, 128, factors.get(), by_places.get(), kTexts, kTokens,
         kWidth);
  launch(&in_double::type_gradients<double>, {kTypes, 3}, 256, type_ids.get(), factors.get(),
         by_types.argument(), kCount, kWidth, kTypes);
  expect_gradients(
      [&] {
        launch(&in_double::embed_tokens<double>, {kCount}, 128, ids.get(), type_ids.get(), words.get(),
               types.get(), places.get(), results.get(), kWords, kTypes, kTokens, kWidth);
        return product(results, factors);
      },
      {{&words, &by_words}, {&places, &by_places}, {&types, &by_types.totals}});
}

template <bool adds, bool relu>
void check_batch_norm() {
  constexpr int kRows = 9, kChannels = 4, kWidth = 2;
  constexpr std::size_t kSize = kRows * kChannels;
  const auto x = waves(kSize, 1), residual = waves(kSize, 2), weight = waves(kChannels, 3),
             bias = waves(kChannels, 4);
  const auto factors = waves(kSize, 5);
  Numbers partial(std::size_t{2} * 2 * kChannels), mean(kChannels), inverse(kChannels), y(kSize);
  const Dimensions grid{2, 1};
  const auto forward = [&] {
    launch(&in_double::batch_norm_sums<double>, grid, 256, x.get(), partial.get(), kRows, kChannels, kWidth);
    launch(&in_double::batch_norm_statistics<double>, {1}, 1024, partial.get(), 2, x.get(), kRows, kChannels,
           1e-3, 0.1, mean.get(), inverse.get(), nullptr, nullptr, nullptr);
    launch(&in_double::batch_norm_apply<double, adds, relu>, grid, 256, x.get(), residual.get(), y.get(),
           mean.get(), inverse.get(), weight.get(), bias.get(), kRows, kChannels, kWidth);
    return product(y, factors);
  };
  forward();
  Numbers by_weight(kChannels), by_bias(kChannels), middle(kChannels), slope(kChannels), by_x(kSize),
      by_residual(kSize);
  launch(&in_double::batch_norm_gradient_sums<double, adds, relu>, grid, 256, factors.get(), x.get(), y.get(),
         mean.get(), inverse.get(), weight.get(), bias.get(), partial.get(), kRows, kChannels, kWidth);
  launch(&in_double::batch_norm_gradient_parts<double>, {1}, 1024, partial.get(), 2, inverse.get(), kRows,
         kChannels, by_weight.get(), by_bias.get(), middle.get(), slope.get());
  launch(&in_double::batch_norm_gradients<double, adds, relu>, grid, 256, factors.get(), x.get(), y.get(),
         mean.get(), inverse.get(), weight.get(), bias.get(), middle.get(), slope.get(), by_x.get(),
         by_residual.get(), kRows, kChannels, kWidth);
  std::vector<Input> inputs{{&x, &by_x}, {&weight, &by_weight}, {&bias, &by_bias}};
  if (adds && relu) inputs.push_back({&residual, &by_residual});
  expect_gradients(forward, inputs);
}

TEST(KernelGradients, OfBatchNorms) {
  check_batch_norm<false, false>();
  check_batch_norm<false, true>();
  check_batch_norm<true, true>();
}

using emulated::bf16;

Buffer<bf16> narrow_waves(std::size_t size, double phase) {
  return waves_as<bf16>(size, phase,
                        [](double value) { return emulated::rounded<bf16>(static_cast<float>(value)); });
}
Buffer<float> wide_waves(std::size_t size, double phase) {
  return waves_as<float>(size, phase, [](double value) { return static_cast<float>(value); });
}

template <class Values>
void expect_finite(const Values& values) {
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_TRUE(std::isfinite(emulated::to_float(values[i]))) << i;
}

/// Rows and columns that fill neither a block nor its packs, in the dtypes of the GPU.
TEST(KernelMemory, OfNormsEndsWithTheirTensors) {
  constexpr int kRows = 5, kWidth = 132;
  const auto residual = wide_waves(kRows * kWidth, 1), gamma = wide_waves(kWidth, 3);
  const auto branch = narrow_waves(kRows * kWidth, 2);
  Buffer<float> sum(kRows * kWidth), wide(kRows * kWidth), means(kRows), inverses(kRows);
  Buffer<bf16> narrow(kRows * kWidth);
  launch(&emulated::add_norm<bf16, 2>, {kRows}, 32, residual.get(), branch.get(), sum.get(), narrow.get(),
         wide.get(), gamma.get(), gamma.get(), means.get(), inverses.get(), kWidth, 1e-5F);
  expect_finite(narrow);
  Buffer<float> by_residual(kRows * kWidth), partial(2 * 3 * kWidth), both(3 * kWidth);
  Buffer<bf16> by_branch(kRows * kWidth);
  const emulated::BlockSums left{partial.get(), nullptr, nullptr, 1};
  launch(&emulated::add_norm_backward<bf16, 2, true>, {2}, 32, narrow.get(), wide.get(), sum.get(), sum.get(),
         gamma.get(), means.get(), inverses.get(), by_residual.get(), by_branch.get(), left, kRows, kWidth,
         32);
  launch(&emulated::column_totals, {(3 * kWidth + 31) / 32}, 1024, partial.get(), both.get(), 2, 3 * kWidth);
  expect_finite(both);
  const auto scale = narrow_waves(kWidth, 4);
  const emulated::RmsWeight weight{nullptr, scale.get(), 0.0F};
  launch(&emulated::rms_norm<float, bf16, 2>, {(kRows + 3) / 4}, 128, residual.get(), branch.get(), sum.get(),
         narrow.get(), weight, inverses.get(), kRows, kWidth, 32, 1e-5F);
  expect_finite(narrow);
  launch(&emulated::rms_norm_backward<float, bf16, 2>, {2}, 128, narrow.get(), sum.get(), sum.get(), weight,
         inverses.get(), by_residual.get(), by_branch.get(), left, kRows, kWidth, 32);
  expect_finite(by_branch);
}

TEST(KernelMemory, OfLayersEndsWithTheirTensors) {
  constexpr int kRows = 5, kWidth = 24, kSize = 24, kRotated = 16;
  const auto both = narrow_waves(kRows * 2 * kWidth, 1), given = narrow_waves(kRows * kWidth, 2);
  Buffer<bf16> results(kRows * kWidth), by_both(kRows * 2 * kWidth), turned(kRows * kSize);
  const emulated::GateStrides strides{2 * kWidth, 2 * kWidth};
  launch(&emulated::gated<bf16, 0>, {2}, 32, both.get(), both.get() + kWidth, results.get(), strides, kRows,
         kWidth);
  expect_finite(results);
  launch(&emulated::gated_backward<bf16, 0>, {2}, 32, given.get(), both.get(), both.get() + kWidth,
         by_both.get(), by_both.get() + kWidth, strides, 2 * kWidth, kRows, kWidth);
  expect_finite(by_both);
  const auto angles = wide_waves(kRows * kRotated, 3);
  const emulated::RopeShape shape{1, kRows, {kRows * kSize, kSize, kSize}, {}, 0, 1, 0, kSize, kRotated};
  launch(&emulated::rope<bf16, float>, {1}, 256, given.get(), static_cast<const bf16*>(nullptr), turned.get(),
         static_cast<bf16*>(nullptr), angles.get(), angles.get(), shape, 1.0F);
  expect_finite(turned);
  Buffer<float> partial(2 * kWidth), totals(kWidth);
  Buffer<unsigned> counters(2, 0);
  const emulated::BlockSums sums{partial.get(), totals.get(), counters.get(), 2};
  launch(&emulated::column_sums<bf16>, {1, 2}, 256, given.get(), sums, kRows, kWidth);
  launch(&emulated::gelu_forward<bf16, true>, {1}, 256, given.get(), results.get(), kRows * kWidth);
  launch(&emulated::gelu_backward<bf16, true>, {1, 2}, 256, given.get(), given.get(), results.get(), sums,
         kRows, kWidth);
  expect_finite(totals);
}

TEST(KernelMemory, OfCrossEntropiesEndsWithTheirRows) {
  constexpr int kRows = 3, kWords = 21, kStride = 24;
  const auto logits = narrow_waves(kRows * kStride, 1);
  Buffer<long long> labels(kRows, 20), predictions(kRows);
  Buffer<float> losses(kRows);
  launch(&emulated::cross_entropy<bf16, true>, {kRows}, 64, logits.get(), labels.get(), losses.get(),
         predictions.get(), nullptr, kWords, kStride, -100, 0.0F, emulated::LossTotals{});
  expect_finite(losses);
  expect_finite(logits);
}

#if defined(__SANITIZE_ADDRESS__)
TEST(KernelMemoryDeathTest, AnElementBehindATensorIsReported) {
  const auto read_too_much = [] {
    const auto given = narrow_waves(20, 2);
    Buffer<bf16> results(24);
    launch(&emulated::gelu_forward<bf16, true>, {1}, 32, given.get(), results.get(), 24);
  };
  EXPECT_DEATH(read_too_much(), "heap-buffer-overflow");
}
#endif

}  // namespace
}  // namespace lockstep::testing
