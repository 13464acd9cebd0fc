// The fused kernels on a GPU: as exact as LibTorch's operations, which is told by both against float64, and
// how long both take, as recorded graphs, so that the host does not count.

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "comm/cuda/graph_replays.hpp"
#include "kernels/add_norm.hpp"
#include "kernels/column_sums.hpp"
#include "kernels/fused_kernels.hpp"
#include "kernels/gated.hpp"
#include "kernels/linear.hpp"
#include "kernels/rms_norm.hpp"
#include "kernels/rope.hpp"
#include "kernels/scaled_copies.hpp"
#include "lockstep/models/bert.hpp"
#include "lockstep/models/decoder.hpp"
#include "lockstep/models/gpt2.hpp"
#include "lockstep/models/token_losses.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/train/graphed_step.hpp"
#include "lockstep/train/mixed_precision.hpp"
#include "support/gpu.hpp"

namespace lockstep::kernels {
namespace {

using Tensors = std::vector<at::Tensor>;

/// An operation of tensors, the first of whose results are differentiated.
struct Operation {
  Tensors inputs;
  std::function<Tensors(const Tensors& inputs)> run;
};

/// Turns fused kernels off.
struct WithoutFused {
  WithoutFused() { set_fused_kernels(FusedKernels::off); }
  ~WithoutFused() { set_fused_kernels(FusedKernels::automatic); }
  WithoutFused(const WithoutFused&) = delete;
  WithoutFused& operator=(const WithoutFused&) = delete;
};

const at::Device kGpu(at::kCUDA, 0);

at::Tensor drawn_on_gpu(at::IntArrayRef sizes, double spread = 1, at::ScalarType dtype = at::kFloat) {
  return (torch::randn(sizes, at::TensorOptions(kGpu)) * spread).to(at::kBFloat16).to(dtype).requires_grad_();
}

/// Results, and the gradients by the inputs for drawn gradients of the results.
Tensors run_both_ways(const Operation& operation, const Tensors& inputs, const Tensors& factors) {
  const Tensors results = operation.run(inputs);
  Tensors all;
  for (const auto& result : results) all.push_back(result.detach());
  Tensors of_results;
  for (std::size_t i = 0; i < results.size(); ++i)
    of_results.push_back(factors[i].to(results[i].scalar_type()));
  const auto gradients = torch::autograd::grad(results, inputs, of_results);
  all.insert(all.end(), gradients.begin(), gradients.end());
  return all;
}

/// Microseconds of a call on the GPU: the median of replays of a graph of some calls.
double time_of(const std::function<void()>& call) {
  constexpr int kCalls = 4, kReplays = 15;
  comm::cuda_plugin().synchronize(0);
  const auto stream = graph_stream(kGpu);
  for (int i = 0; i < 3; ++i) call();
  comm::GraphReplays replays(kGpu);
  const auto graph = comm::cuda_plugin().make_graph(comm::cuda_plugin().make_graph_pool());
  replays.record(*graph, [&] {
    for (int i = 0; i < kCalls; ++i) call();
  });
  std::vector<double> times;
  for (int i = 0; i < kReplays; ++i) {
    comm::cuda_plugin().synchronize(0);
    const auto begin = std::chrono::steady_clock::now();
    graph->replay();
    comm::cuda_plugin().synchronize(0);
    times.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + kReplays / 2, times.end());
  return times[kReplays / 2] / kCalls;
}

double distance(const at::Tensor& got, const at::Tensor& exact) {
  const double scale = exact.abs().max().item<double>() + 1e-30;
  return (got.to(at::kDouble) - exact).abs().max().item<double>() / scale;
}

/// A line of the report of a test.
void note(const std::string& line) {
  static int number = 0;
  std::cout << line << '\n' << std::flush;
  ::testing::Test::RecordProperty(fmt::format("note{}", ++number), line);
}

void compare(const std::string& name, const Operation& operation, bool is_timed = true) {
  Tensors inputs64, factors;
  for (const auto& input : operation.inputs)
    inputs64.push_back(input.detach().to(at::kDouble).requires_grad_());
  for (const auto& result : operation.run(inputs64))
    factors.push_back(result.dim() == 0 ? at::ones_like(result)
                                        : torch::randn_like(result).to(at::kBFloat16).to(at::kDouble));
  const Tensors exact = run_both_ways(operation, inputs64, factors);
  const Autocast cast(kGpu, MixedPrecision::bf16);
  const auto run = [&] { return run_both_ways(operation, operation.inputs, factors); };
  const Tensors fused = run(), again = run();
  Tensors composed;
  double composed_time = 0;
  {
    const WithoutFused off;
    composed = run();
    if (is_timed) composed_time = time_of([&] { run(); });
  }
  double worst = 0, worst_composed = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double ours = distance(fused[i], exact[i]), theirs = distance(composed[i], exact[i]);
    worst = std::max(worst, ours);
    worst_composed = std::max(worst_composed, theirs);
    EXPECT_LE(ours, 1.5 * theirs + 2e-5) << name << ", tensor " << i;
    EXPECT_TRUE(at::equal(fused[i], again[i])) << name << ", tensor " << i << " differs between two runs";
  }
  const double fused_time = is_timed ? time_of([&] { run(); }) : 0;
  note(fmt::format("{}: {:.1f} us, LibTorch's {:.1f} us; apart from float64 by {:.1e}, LibTorch's by {:.1e}",
                   name, fused_time, composed_time, worst, worst_composed));
}

Operation loss_operation(std::int64_t tokens, std::int64_t words, std::int64_t width,
                         const models::TokenLossOptions& options) {
  const at::Tensor labels = torch::randint(words, {1, tokens}, at::TensorOptions(kGpu).dtype(at::kLong));
  labels.narrow(1, 0, tokens / 8).fill_(models::kNoLabel);
  return {.inputs = {drawn_on_gpu({1, tokens, width}), drawn_on_gpu({words, width}, 0.1)},
          .run = [=](const Tensors& inputs) {
            return Tensors{models::token_losses({.weight = inputs[1]}, inputs[0], labels, options).loss_sum};
          }};
}

TEST(FusedOnDevice, CrossEntropyOfASmallVocabulary) {
  LOCKSTEP_NEEDS_GPU();
  torch::manual_seed(1);
  compare("loss of 300 tokens, 5,003 words", loss_operation(300, 5003, 64, {}));
  compare("loss with label smoothing", loss_operation(300, 5003, 64, {.label_smoothing = 0.1}), false);
  compare("loss in parts", loss_operation(600, 5003, 64, {.logits_at_a_time = 200 * 5003}), false);
}

TEST(FusedOnDevice, CrossEntropyOfGpt2) {
  LOCKSTEP_NEEDS_GPU();
  torch::manual_seed(2);
  compare("loss of 1,024 tokens, 50,257 words", loss_operation(1024, 50257, 768, {}));
}

TEST(FusedOnDevice, PredictionsAreLibTorchs) {
  LOCKSTEP_NEEDS_GPU();
  const auto one = loss_operation(512, 5003, 64, {});
  const at::Tensor labels = torch::randint(5003, {1, 512}, at::TensorOptions(kGpu).dtype(at::kLong));
  const Autocast cast(kGpu, MixedPrecision::bf16);
  const at::NoGradGuard no_grad;
  const auto predict = [&] {
    return models::token_losses({.weight = one.inputs[1]}, one.inputs[0], labels, {.predictions = true});
  };
  const auto fused = predict();
  const WithoutFused off;
  EXPECT_TRUE(at::equal(fused.predictions, predict().predictions));
}

Operation linear_operation(std::int64_t tokens, std::int64_t inputs, std::int64_t outputs,
                           std::size_t weights, const LinearOptions& options,
                           at::ScalarType input = at::kFloat) {
  Tensors all{drawn_on_gpu({2, tokens / 2, inputs}, 1, input)};
  for (std::size_t i = 0; i < weights; ++i) {
    all.push_back(options.is_turned ? drawn_on_gpu({inputs, outputs}, 0.05)
                                    : drawn_on_gpu({outputs, inputs}, 0.05));
  }
  for (std::size_t i = 0; i < weights; ++i) all.push_back(drawn_on_gpu({outputs}));
  return {
      .inputs = all, .run = [=](const Tensors& given) {
        const auto begin = given.begin() + 1, middle = begin + static_cast<std::ptrdiff_t>(weights);
        const Tensors matrices(begin, middle), biases(middle, given.end());
        if (const auto dtype = fused_dtype(given[0]))
          return Tensors{kernels::linear(given[0], matrices, biases, *dtype, options)};
        Tensors parts;
        for (std::size_t i = 0; i < weights; ++i)
          parts.push_back(at::linear(given[0], options.is_turned ? matrices[i].t() : matrices[i], biases[i]));
        const at::Tensor values = weights == 1 ? parts[0] : at::cat(parts, -1);
        if (options.activation == Activation::none) return Tensors{values};
        return Tensors{at::gelu(values, options.activation == Activation::gelu_tanh ? "tanh" : "none")};
      }};
}

TEST(FusedOnDevice, LinearLayers) {
  LOCKSTEP_NEEDS_GPU();
  torch::manual_seed(3);
  compare("linear 4096 x 768 to 768", linear_operation(4096, 768, 768, 1, {}, at::kBFloat16));
  compare("Conv1D 4096 x 768 to 2304", linear_operation(4096, 768, 2304, 1, {.is_turned = true}));
  compare("three linear layers of 768", linear_operation(4096, 768, 768, 3, {}));
  compare("linear of odd sizes", linear_operation(50, 72, 40, 1, {}), false);
}

TEST(FusedOnDevice, LinearLayersWithGelu) {
  LOCKSTEP_NEEDS_GPU();
  torch::manual_seed(4);
  compare("linear 768 to 3072, GELU", linear_operation(4096, 768, 3072, 1, {.activation = Activation::gelu}));
  compare("Conv1D 768 to 3072, GELU by tanh",
          linear_operation(4096, 768, 3072, 1, {.is_turned = true, .activation = Activation::gelu_tanh}));
}

Operation norm_operation(std::int64_t rows, std::int64_t width, const AddNormWants& wants) {
  return {.inputs = {drawn_on_gpu({rows, width}), drawn_on_gpu({rows, width}, 1, at::kBFloat16),
                     drawn_on_gpu({width}), drawn_on_gpu({width})},
          .run = [=](const Tensors& given) {
            if (const auto dtype = fused_dtype(given[0])) {
              const Norm norm{.weight = given[2], .bias = given[3]};
              EXPECT_TRUE(takes_add_norm(given[0], given[1], norm, *dtype));
              const AddNorm got = add_norm(given[0], given[1], norm, *dtype, wants);
              Tensors results{got.narrow};
              if (wants.sum) results.push_back(got.sum);
              if (wants.wide) results.push_back(got.wide);
              return results;
            }
            const at::Tensor sum = given[0] + given[1];
            const at::Tensor norm = at::layer_norm(sum, {width}, given[2], given[3], 1e-5);
            Tensors results{given[1].scalar_type() == at::kDouble ? norm : norm.to(at::kBFloat16)};
            if (wants.sum) results.push_back(sum);
            if (wants.wide) results.push_back(norm);
            return results;
          }};
}

TEST(FusedOnDevice, LayerNorms) {
  LOCKSTEP_NEEDS_GPU();
  torch::manual_seed(5);
  compare("add and norm 4096 x 768, sum", norm_operation(4096, 768, {.sum = true}));
  compare("add and norm 4096 x 768, wide", norm_operation(4096, 768, {.wide = true}));
  compare("add and norm 1000 x 1600", norm_operation(1000, 1600, {.sum = true}), false);
  compare("add and norm 300 x 4096", norm_operation(300, 4096, {.sum = true}));
  compare("add and norm 3 x 8192", norm_operation(3, 8192, {.sum = true}), false);
}

/// As the decoder composes it of LibTorch's operations.
at::Tensor composed_rms_norm(const at::Tensor& states, const at::Tensor& weight) {
  const at::Tensor values = states.scalar_type() == at::kDouble ? states : states.to(at::kFloat);
  return values * at::rsqrt(values.pow(2).mean(-1, /*keepdim=*/true) + 1e-5) * weight;
}

Operation rms_norm_operation(at::IntArrayRef sizes, at::ScalarType residual) {
  const auto width = sizes.back();
  return {.inputs = {drawn_on_gpu(sizes, 1, residual), drawn_on_gpu(sizes, 1, at::kBFloat16),
                     drawn_on_gpu({width})},
          .run = [=](const Tensors& given) {
            if (const auto dtype = fused_dtype(given[0])) {
              const RmsNormParameters norm{.weight = given[2], .epsilon = 1e-5};
              EXPECT_TRUE(takes_rms_norm(given[0], given[1], norm, *dtype));
              const AddRmsNorm got = add_rms_norm(given[0], given[1], norm, *dtype);
              return Tensors{got.normed, got.sum};
            }
            const at::Tensor sum = given[0] + given[1];
            const at::Tensor norm = composed_rms_norm(sum, given[2]);
            return Tensors{given[1].scalar_type() == at::kDouble ? norm : norm.to(at::kBFloat16), sum};
          }};
}

TEST(FusedOnDevice, RmsNorms) {
  LOCKSTEP_NEEDS_GPU();
  torch::manual_seed(10);
  compare("add and RMS norm 4096 x 2048", rms_norm_operation({4096, 2048}, at::kFloat));
  compare("add and RMS norm 4096 x 4096 in bf16", rms_norm_operation({4096, 4096}, at::kBFloat16));
  compare("RMS norm of heads, 4096 x 16 x 128", rms_norm_operation({4096, 16, 128}, at::kBFloat16));
  compare("add and RMS norm 3 x 8192", rms_norm_operation({3, 8192}, at::kFloat), false);
}

/// Queries and keys of one product, of `rotated` elements of each head of `size`.
Operation rope_operation(std::int64_t tokens, std::int64_t size, std::int64_t rotated) {
  constexpr std::int64_t kQueries = 16, kKeys = 4;
  const at::Tensor angles = torch::randn({tokens, rotated / 2}, at::TensorOptions(kGpu));
  const at::Tensor both = at::cat({angles, angles}, -1), cos = both.cos(), sin = both.sin();
  return {.inputs = {drawn_on_gpu({2, tokens, (kQueries + kKeys) * size}, 1, at::kBFloat16)},
          .run = [=](const Tensors& given) {
            const auto heads = given[0].view({2, tokens, kQueries + kKeys, size}).transpose(1, 2);
            const at::Tensor query = heads.narrow(1, 0, kQueries), key = heads.narrow(1, kQueries, kKeys);
            if (fused_dtype(query)) {
              const RopeTask task{.query = query, .key = key, .cos = cos, .sin = sin};
              EXPECT_TRUE(takes_rope(task));
              const TurnedHeads turned = rope(task);
              return Tensors{turned.query, turned.key};
            }
            const auto turned = [&](const at::Tensor& values) {
              const at::Tensor first = values.narrow(-1, 0, rotated);
              const auto halves = first.chunk(2, -1);
              const at::Tensor sums = first * cos + at::cat({-halves[1], halves[0]}, -1) * sin;
              return at::cat({sums.to(values.scalar_type()), values.narrow(-1, rotated, size - rotated)}, -1);
            };
            return Tensors{turned(query), turned(key)};
          }};
}

TEST(FusedOnDevice, RotaryPositions) {
  LOCKSTEP_NEEDS_GPU();
  torch::manual_seed(11);
  compare("rotary positions of 2 x 2048 tokens, 20 heads of 128", rope_operation(2048, 128, 128));
  compare("rotary positions of a part of 80", rope_operation(300, 80, 32), false);
}

Operation gate_operation(std::int64_t rows, std::int64_t width, Gate activation) {
  return {.inputs = {drawn_on_gpu({rows, width}, 2, at::kBFloat16),
                     drawn_on_gpu({rows, width}, 1, at::kBFloat16)},
          .run = [=](const Tensors& given) {
            if (fused_dtype(given[0])) {
              EXPECT_TRUE(takes_gate(given[0], given[1], activation));
              return Tensors{activate_gate(given[0], given[1], activation)};
            }
            const at::Tensor active = activation == Gate::silu
                                          ? at::silu(given[0])
                                          : at::gelu(given[0], activation == Gate::gelu ? "none" : "tanh");
            return Tensors{active * given[1]};
          }};
}

TEST(FusedOnDevice, Gates) {
  LOCKSTEP_NEEDS_GPU();
  torch::manual_seed(12);
  compare("SwiGLU 4096 x 8192", gate_operation(4096, 8192, Gate::silu));
  compare("GeGLU 4096 x 8192", gate_operation(4096, 8192, Gate::gelu_tanh));
  compare("GeGLU of the error function", gate_operation(300, 40, Gate::gelu), false);
}

TEST(FusedOnDevice, ColumnSums) {
  LOCKSTEP_NEEDS_GPU();
  torch::manual_seed(6);
  for (const std::int64_t width : {768, 2304, 3072}) {
    const at::Tensor matrix = drawn_on_gpu({4096, width}, 1, at::kBFloat16).detach();
    EXPECT_LE(distance(column_sums(matrix), matrix.to(at::kDouble).sum(0)), 1e-5);
    const double ours = time_of([&] { column_sums(matrix); });
    const double theirs = time_of([&] { at::sum(matrix, {0}, false, at::kFloat); });
    note(fmt::format("column sums of 4096 x {}: {:.1f} us, LibTorch's {:.1f} us", width, ours, theirs));
  }
}

/// A norm's backward sums the gradient of the bias of the layer before it.
TEST(FusedOnDevice, ALayerAndItsNorm) {
  LOCKSTEP_NEEDS_GPU();
  torch::manual_seed(14);
  const auto layer = linear_operation(4096, 768, 768, 1, {}, at::kBFloat16);
  Tensors inputs = layer.inputs;
  for (const std::int64_t rows : {4096, 1, 1}) inputs.push_back(drawn_on_gpu({rows * 768}));
  compare("linear, add and norm 4096 x 768",
          {.inputs = inputs, .run = [layer](const Tensors& given) {
             const at::Tensor branch = layer.run({given[0], given[1], given[2]})[0];
             const auto norm = norm_operation(4096, 768, {.sum = true});
             return norm.run({given[3].view({2, 2048, 768}), branch, given[4], given[5]});
           }});
}

TEST(FusedOnDevice, CopiesOfGradients) {
  LOCKSTEP_NEEDS_GPU();
  torch::manual_seed(15);
  Tensors from, to, exact;
  for (const std::int64_t size : {2304 * 768, 2304, 768 * 768, 768, 3072 * 768, 3072, 768 * 3072, 768, 5})
    from.push_back(drawn_on_gpu({size}).detach());
  const auto composed = [&] {
    exact.clear();
    for (const auto& one : from) exact.push_back(one.to(at::kBFloat16).mul(0.125));
  };
  composed();
  for (const auto& one : exact) to.push_back(at::empty_like(one));
  ASSERT_TRUE(takes_scaled_copies(from, to));
  const auto copy = [&] { write_scaled_copies(from, to, 0.125); };
  copy();
  for (std::size_t i = 0; i < to.size(); ++i) EXPECT_TRUE(at::equal(to[i], exact[i])) << i;
  note(fmt::format("copies of a block's gradients: {:.1f} us, LibTorch's {:.1f} us", time_of(copy),
                   time_of(composed)));
}

/// The losses of some steps of a model in bf16 with AdamW.
template <class Model, class Loss>
std::vector<double> losses_of_training(Model model, const Loss& loss_of, int steps, bool graphed) {
  const auto stream = graph_stream(kGpu);
  torch::manual_seed(7);
  Model made = model;
  made->to(kGpu);
  optim::AdamW optimizer(made->parameters(), {.lr = 3e-4});
  const auto step = [&](const Tensors& inputs) {
    const at::Tensor loss =
        in_precision(kGpu, MixedPrecision::bf16, [&] { return loss_of(made, inputs[0]); });
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    return Tensors{loss.detach()};
  };
  GraphedStep recorded(step);
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) {
    const at::Tensor tokens =
        (at::arange(4 * 64, at::kLong) * (i % 3 + 5)).remainder(1003).view({4, 64}).to(kGpu);
    losses.push_back((graphed ? recorded({tokens}) : step({tokens}))[0].template item<double>());
  }
  return losses;
}

models::Gpt2LMHeadModel small_gpt2() {
  torch::manual_seed(8);
  return models::Gpt2LMHeadModel(models::Gpt2Config{.vocab_size = 1003,
                                                    .n_positions = 64,
                                                    .n_embd = 256,
                                                    .n_layer = 4,
                                                    .n_head = 4,
                                                    .resid_pdrop = 0,
                                                    .embd_pdrop = 0,
                                                    .attn_pdrop = 0});
}

models::BertForSequenceClassification small_bert() {
  torch::manual_seed(9);
  return models::BertForSequenceClassification(models::BertConfig{.vocab_size = 1003,
                                                                  .hidden_size = 256,
                                                                  .num_hidden_layers = 4,
                                                                  .num_attention_heads = 4,
                                                                  .intermediate_size = 1024,
                                                                  .hidden_dropout_prob = 0,
                                                                  .attention_probs_dropout_prob = 0,
                                                                  .max_position_embeddings = 64});
}

double apart(const std::vector<double>& some, const std::vector<double>& others) {
  double worst = 0;
  for (std::size_t i = 0; i < some.size(); ++i)
    worst = std::max(worst, std::abs(some[i] - others[i]) / std::max(std::abs(others[i]), 0.1));
  return worst;
}

/// Fused, twice, as a graph, and with LibTorch's operations. Two runs differ where attention's backward does.
template <class Make, class Loss>
void compare_trainings(const std::string& name, const Make& make, const Loss& loss_of) {
  constexpr int kSteps = 30;
  const auto fused = losses_of_training(make(), loss_of, kSteps, false);
  const double of_two = apart(losses_of_training(make(), loss_of, kSteps, false), fused);
  const double of_graph = apart(losses_of_training(make(), loss_of, kSteps, true), fused);
  const WithoutFused off;
  const auto composed = losses_of_training(make(), loss_of, kSteps, false);
  note(fmt::format(
      "{}: losses {:.4f} to {:.4f}, LibTorch's {:.4f} to {:.4f}; apart by {:.1e} at most, two runs "
      "by {:.1e}, a graph by {:.1e}",
      name, fused.front(), fused.back(), composed.front(), composed.back(), apart(fused, composed), of_two,
      of_graph));
  EXPECT_LE(apart(fused, composed), 0.05);
  EXPECT_LE(of_two, 0.01);
  EXPECT_LE(of_graph, 0.01);
  EXPECT_LT(fused.back(), fused.front());
}

TEST(FusedOnDevice, TrainingOfGpt2) {
  LOCKSTEP_NEEDS_GPU();
  compare_trainings("GPT-2", small_gpt2, [](auto& model, const at::Tensor& tokens) {
    const auto losses = model->token_losses(tokens, {}, tokens);
    return losses.loss_sum / losses.loss_weight;
  });
}

TEST(FusedOnDevice, TrainingOfLlama) {
  LOCKSTEP_NEEDS_GPU();
  const auto small_llama = [] {
    torch::manual_seed(13);
    models::DecoderConfig config;
    config.vocab_size = 1003;
    config.hidden_size = 256;
    config.intermediate_size = 512;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    config.head_dim = 64;
    config.layers.resize(4);
    return models::DecoderForCausalLM(config);
  };
  compare_trainings("Llama", small_llama, [](auto& model, const at::Tensor& tokens) {
    const auto losses = model->token_losses(tokens, {}, tokens);
    return losses.loss_sum / losses.loss_weight;
  });
}

TEST(FusedOnDevice, TrainingOfBert) {
  LOCKSTEP_NEEDS_GPU();
  compare_trainings("BERT", small_bert, [](auto& model, const at::Tensor& tokens) {
    return at::cross_entropy_loss(model(tokens).to(at::kFloat), tokens.select(1, 0).remainder(2));
  });
}

}  // namespace
}  // namespace lockstep::kernels
