// Arguments that the trainer passes on: each one separately, and which part gets it.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/rmsprop.h>

#include "kernels/fused_kernels.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/models/gpt2.hpp"
#include "lockstep/models/trainer_model.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/sgd.hpp"
#include "support/throws.hpp"
#include "unit/train/small_trainings.hpp"

namespace lockstep {
namespace {

using testing::arguments;
using testing::samples;
using testing::small_model;
using testing::TemporaryFolder;

/// The options that the parts of a trainer get.
struct Told {
  DataLoaderOptions train = {};
  DataLoaderOptions eval = {};
  AcceleratorOptions accelerator = {};
  /// As the wrapped model has them during training.
  DistributedDataParallelOptions ddp = {};
  std::chrono::milliseconds timeout = {};
  std::uint64_t torch_seed = 0;
  bool deterministic = false;
  bool tf32_in_cublas = false;
  bool tf32_in_cudnn = false;
  bool fused = true;
};

/// Restores LibTorch's global settings.
class SameContext {
 public:
  ~SameContext() {
    auto& context = at::globalContext();
    context.setDeterministicAlgorithms(deterministic_, /*warn_only=*/true);
    context.setAllowTF32CuBLAS(cublas_);
    context.setAllowTF32CuDNN(cudnn_);
    set_fused_kernels(FusedKernels::automatic);
  }

 private:
  bool deterministic_ = at::globalContext().deterministicAlgorithms();
  bool cublas_ = at::globalContext().allowTF32CuBLAS();
  bool cudnn_ = at::globalContext().allowTF32CuDNN();
};

/// A model that records how it was wrapped.
std::shared_ptr<ModelAdapter> noting_model(DistributedDataParallelOptions& ddp) {
  return wrap_model(torch::nn::Linear(3, 1), [&ddp](auto& model, const Batch& batch) {
    if constexpr (requires { model.options(); }) ddp = model.options();
    return Batch{{"loss", (model(batch["x"]) - batch["y"]).square().mean()}};
  });
}

Told told_with(const std::function<void(TrainingArguments&)>& change) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.max_steps = 1;
  args.device = "cpu";
  change(args);
  const SameContext context;
  Told told{.accelerator = accelerator_options(args)};
  const auto data = samples(16);
  // Only the options are checked, because the device may not exist.
  if (args.device != "cpu") return told;
  Trainer trainer(args, {.model = noting_model(told.ddp), .train_dataset = data});
  told.torch_seed = at::detail::getDefaultCPUGenerator().current_seed();
  told.deterministic = at::globalContext().deterministicAlgorithms();
  told.tf32_in_cublas = at::globalContext().allowTF32CuBLAS();
  told.tf32_in_cudnn = at::globalContext().allowTF32CuDNN();
  told.fused = kernels::use_fused();
  told.timeout = trainer.accelerator().process_group().timeout();
  told.train = trainer.get_train_dataloader().options();
  told.eval = trainer.get_eval_dataloader(data).options();
  trainer.train();
  return told;
}

/// A non-default argument, and a check that the right part got it.
struct Argument {
  const char* name;
  std::function<void(TrainingArguments&)> change;
  std::function<bool(const Told&)> arrives;
};

using A = TrainingArguments;

std::vector<Argument> loader_arguments() {
  return {
      {"dataloader_drop_last", [](A& a) { a.dataloader_drop_last = true; },
       [](const Told& told) { return told.train.drop_last && !told.eval.drop_last; }},
      {"dataloader_num_workers", [](A& a) { a.dataloader_num_workers = 2; },
       [](const Told& told) { return told.train.num_workers == 2 && told.eval.num_workers == 2; }},
      {"dataloader_pin_memory", [](A& a) { a.dataloader_pin_memory = false; },
       [](const Told& told) { return !told.train.pin_memory && !told.eval.pin_memory; }},
      {"dataloader_persistent_workers", [](A& a) { a.dataloader_persistent_workers = false; },
       [](const Told& told) { return !told.train.persistent_workers && !told.eval.persistent_workers; }},
      {"dataloader_prefetch_factor", [](A& a) { a.dataloader_prefetch_factor = 5; },
       [](const Told& told) { return told.train.prefetch_factor == 5 && told.eval.prefetch_factor == 5; }},
      {"non_blocking", [](A& a) { a.non_blocking = true; },
       [](const Told& told) {
         return told.train.non_blocking && told.eval.non_blocking &&
                told.accelerator.dataloader_config.non_blocking;
       }},
      {"per_device_train_batch_size", [](A& a) { a.per_device_train_batch_size = 5; },
       [](const Told& told) { return told.train.batch_size == 5; }},
      {"per_device_eval_batch_size", [](A& a) { a.per_device_eval_batch_size = 5; },
       [](const Told& told) { return told.eval.batch_size == 5; }},
      {"train_sampling_strategy", [](A& a) { a.train_sampling_strategy = SamplingStrategy::sequential; },
       [](const Told& told) { return !told.train.shuffle; }},
      {"seed", [](A& a) { a.seed = 7; },
       [](const Told& told) {
         return told.torch_seed == 7 && told.train.seed == 7 &&
                told.accelerator.dataloader_config.data_seed == 7U;
       }},
      {"data_seed", [](A& a) { a.data_seed = 7; },
       [](const Told& told) {
         return told.torch_seed == 42 && told.train.seed == 7 &&
                told.accelerator.dataloader_config.data_seed == 7U;
       }},
      {"split_batches", [](A& a) { a.split_batches = true; },
       [](const Told& told) { return told.accelerator.dataloader_config.split_batches; }}};
}

std::vector<Argument> machine_arguments() {
  return {
      {"full_determinism", [](A& a) { a.full_determinism = true; },
       [](const Told& told) { return told.deterministic; }},
      {"tf32", [](A& a) { a.tf32 = true; }, [](const Told& told) { return told.tf32_in_cublas; }},
      {"tf32 = false", [](A& a) { a.tf32 = false; }, [](const Told& told) { return !told.tf32_in_cudnn; }},
      {"fused_kernels", [](A& a) { a.fused_kernels = "off"; }, [](const Told& told) { return !told.fused; }},
      {"device", [](A& a) { a.device = "cuda:7"; },
       [](const Told& told) { return told.accelerator.device == "cuda:7"; }},
      {"ddp_backend", [](A& a) { a.ddp_backend = "gloo"; },
       [](const Told& told) { return told.accelerator.backend == CommBackend::gloo; }},
      {"ddp_timeout", [](A& a) { a.ddp_timeout = 77; },
       [](const Told& told) { return told.timeout == std::chrono::seconds(77); }},
      {"ddp_find_unused_parameters", [](A& a) { a.ddp_find_unused_parameters = true; },
       [](const Told& told) { return told.ddp.find_unused_parameters; }},
      {"ddp_bucket_cap_mb", [](A& a) { a.ddp_bucket_cap_mb = 3; },
       [](const Told& told) { return told.ddp.bucket_cap_mb == 3; }},
      {"ddp_broadcast_buffers", [](A& a) { a.ddp_broadcast_buffers = false; },
       [](const Told& told) { return !told.ddp.broadcast_buffers; }},
      {"ddp_static_graph", [](A& a) { a.ddp_static_graph = true; },
       [](const Told& told) { return told.ddp.static_graph; }},
      {"ddp_gradient_as_bucket_view", [](A& a) { a.ddp_gradient_as_bucket_view = false; },
       [](const Told& told) { return !told.ddp.gradient_as_bucket_view; }}};
}

TEST(TrainerArguments, ComeWhereTheyBelong) {
  auto all = loader_arguments();
  for (auto& argument : machine_arguments()) all.push_back(std::move(argument));
  const Told plain = told_with([](A&) {});
  for (const auto& [name, change, arrives] : all) {
    EXPECT_FALSE(arrives(plain)) << name << ": the default is no other";
    EXPECT_TRUE(arrives(told_with(change))) << name << " is not heard of";
  }
}

/// The optimizer that a trainer creates, while the trainer exists.
std::unique_ptr<torch::optim::Optimizer> optimizer_of(const std::function<void(TrainingArguments&)>& change) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  change(args);
  return Trainer(args, {.model = small_model()}).create_optimizer();
}

template <class Fields>
Fields fields_of(torch::optim::Optimizer& optimizer, std::size_t group = 0) {
  return dynamic_cast<optim::GroupOptions<Fields>&>(optimizer.param_groups().at(group).options()).values;
}

template <class Optimizer, class Fields>
void expect_adam(const std::string& name) {
  const auto optimizer = optimizer_of([&](A& a) {
    a.optim = name;
    a.adam_beta1 = 0.5;
    a.adam_beta2 = 0.25;
    a.adam_epsilon = 0.125;
    a.weight_decay = 0.0625;
  });
  ASSERT_NE(dynamic_cast<Optimizer*>(optimizer.get()), nullptr) << name;
  const auto fields = fields_of<Fields>(*optimizer);
  EXPECT_EQ(fields.lr, 0.05);
  EXPECT_EQ(fields.betas, (std::tuple{0.5, 0.25})) << name;
  EXPECT_EQ(fields.eps, 0.125) << name;
  EXPECT_EQ(fields.weight_decay, 0.0625) << name;
  EXPECT_EQ(fields_of<Fields>(*optimizer, 1).weight_decay, 0) << name << ": biases";
}

TEST(TrainerArguments, MakeTheOptimizer) {
  expect_adam<optim::AdamW, optim::AdamWOptions>("adamw_torch_fused");
  expect_adam<optim::AdamW, optim::AdamWOptions>("adamw_torch");
  expect_adam<optim::Adam, optim::AdamOptions>("adam");
  const auto sgd = optimizer_of([](A& a) { a.optim = "sgd", a.sgd_momentum = 0.75, a.weight_decay = 0.5; });
  EXPECT_EQ(fields_of<optim::SgdOptions>(*sgd).momentum, 0.75);
  EXPECT_EQ(fields_of<optim::SgdOptions>(*sgd).weight_decay, 0.5);
  const auto adagrad = optimizer_of([](A& a) { a.optim = "adagrad", a.weight_decay = 0.5; });
  const auto& of_adagrad =
      dynamic_cast<torch::optim::AdagradOptions&>(adagrad->param_groups().at(0).options());
  EXPECT_EQ(of_adagrad.lr(), 0.05);
  EXPECT_EQ(of_adagrad.weight_decay(), 0.5);
  const auto rmsprop = optimizer_of([](A& a) { a.optim = "rmsprop", a.weight_decay = 0.5; });
  const auto& of_rmsprop =
      dynamic_cast<torch::optim::RMSpropOptions&>(rmsprop->param_groups().at(0).options());
  EXPECT_EQ(of_rmsprop.lr(), 0.05);
  EXPECT_EQ(of_rmsprop.weight_decay(), 0.5);
}

/// Whatever the names of the layers are.
TEST(TrainerArguments, LetNoLayerNormDecay) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.weight_decay = 0.5;
  torch::nn::Sequential net(torch::nn::Linear(3, 2), torch::nn::LayerNorm(torch::nn::LayerNormOptions({2})));
  Trainer trainer(args, {.model = wrap_model(net, [](auto&, const Batch&) { return Batch(); })});
  const auto optimizer = trainer.create_optimizer();
  ASSERT_EQ(optimizer->param_groups().size(), 2U);
  ASSERT_EQ(optimizer->param_groups()[0].params().size(), 1U);
  EXPECT_TRUE(optimizer->param_groups()[0].params()[0].is_same(net[0]->as<torch::nn::Linear>()->weight));
}

/// Three classes and an ignored label: a share of the probability is spread over all classes.
TEST(TrainerArguments, SmoothLabels) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.label_smoothing_factor = 0.3;
  const at::Tensor logits =
      at::tensor({1.0, 2.0, 4.0, 0.0, 0.5, 0.0, 3.0, 1.0, 0.0}, at::kDouble).reshape({3, 3});
  const Batch outputs{{"logits", logits}, {"loss", at::zeros({})}};
  const Batch batch{{"labels", at::tensor({2, -100, 1}, at::kLong)}};
  const at::Tensor log = logits.log_softmax(1);
  const double expected =
      -0.7 * (log[0][2] + log[2][1]).item<double>() - 0.1 * (log[0].sum() + log[2].sum()).item<double>();
  const Loss loss = Trainer(args, {.model = small_model()}).compute_loss(outputs, batch);
  EXPECT_NEAR(loss.value.item<double>(), expected, 1e-12);
  EXPECT_EQ(loss.weight->item(), 2);
  args.label_smoothing_factor = 0;
  EXPECT_EQ(Trainer(args, {.model = small_model()}).compute_loss(outputs, batch).value.item<double>(), 0);
}

/// The values of transformers' LabelSmoother with and without shift_labels.
TEST(TrainerArguments, SmoothLabelsOfTokens) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.label_smoothing_factor = 0.3;
  const Batch outputs{{"logits", at::sin(at::arange(40, at::kDouble).view({2, 4, 5}) * 1.3) * 3}};
  const Batch batch{{"labels", at::tensor({1, -100, 4, 0, 2, 3, -100, 1}, at::kLong).view({2, 4})}};
  const auto loss = [&](std::optional<bool> shift) {
    const Loss sum =
        Trainer(args, {.model = small_model(), .shift_labels = shift}).compute_loss(outputs, batch);
    return sum.value.item<double>() / sum.weight->item();
  };
  EXPECT_NEAR(loss(false), 3.1721974342698824, 1e-6);
  EXPECT_NEAR(loss(true), 3.613673276425945, 1e-6);
  EXPECT_THROWS(loss({}), UsageError, "label_smoothing_factor", "shift_labels");
}

/// A language model smooths its own loss. A model whose loss is all that is known cannot be smoothed.
TEST(TrainerArguments, SmoothTheLossOfALanguageModel) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  const models::Gpt2LMHeadModel gpt2(
      models::Gpt2Config{.vocab_size = 11, .n_positions = 8, .n_embd = 4, .n_layer = 1, .n_head = 1});
  const models::CausalLM model(std::static_pointer_cast<models::CausalLMImpl>(gpt2.ptr()));
  const auto adapter = models::trainer_model(model);
  const auto whole = models::trainer_model(model, {.logits = models::LogitsOutput::in_evaluation});
  const at::Tensor ids = at::arange(12).view({2, 6}).remainder(11);
  const Batch batch{{"input_ids", ids}, {"labels", ids}};
  model.ptr()->eval();
  const at::NoGradGuard no_grad;
  for (const double factor : {0.3, 0.0}) {
    args.label_smoothing_factor = factor;
    const auto step = Trainer(args, {.model = adapter}).prediction_step(batch, /*loss_only=*/false);
    const auto expected = model.ptr()->token_losses(ids, {.label_smoothing = factor}, ids);
    EXPECT_TRUE(at::equal(step.loss.value, expected.loss_sum)) << factor;
    EXPECT_EQ(step.loss.weight->item(), 10);
    EXPECT_EQ(step.outputs.names(), (std::vector<std::string>{"loss_sum", "loss_weight", "predictions"}));
    EXPECT_TRUE(Trainer(args, {.model = whole}).prediction_step(batch, false).outputs.contains("logits"));
    EXPECT_TRUE(Trainer(args, {.model = adapter})
                    .prediction_step({{"input_ids", ids}}, false)
                    .outputs.contains("logits"));
  }
  args.label_smoothing_factor = 0.3;
  EXPECT_THROWS(Trainer(args, {.model = small_model()}).compute_loss({{"loss", at::zeros({})}}, batch),
                UsageError, "label_smoothing_factor", "logits");
}

}  // namespace
}  // namespace lockstep
