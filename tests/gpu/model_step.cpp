// Trains one of the models that run.py compares with Python: prints, as one JSON line, the loss of each step,
// the milliseconds a step takes and the memory of the device at its peak. --weights FILE keeps the first
// weights and the batch. With --checkpoints FOLDER it also tells how long a checkpoint takes and how long one
// beside the training holds it up (the first one and the next), and how long a batch of 64 images takes from
// the host.

#include <ATen/Context.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "gpu/step_models.hpp"
#include "lockstep/core/options.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "lockstep/data/data_loader.hpp"
#include "lockstep/models/compiled_model.hpp"
#include "lockstep/models/script_model.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/train/accelerator.hpp"
#include "lockstep/train/graphed_step.hpp"

namespace {

using namespace lockstep;

struct Options {
  std::string model = "gpt2";
  std::string size = "tiny";
  std::string device = "auto";
  std::string precision = "no";
  std::string weights;
  std::string checkpoints;
  std::string program;
  bool graph = false;
  int rows = 2;
  int steps = 5;
  int warmup = 0;
};

const OptionTable<Options>& table() {
  static const auto options =
      OptionTable<Options>("model_step", "Times the training steps of a model.")
          .add("model", &Options::model, "What is trained.", one_of({"mlp", "gpt2", "bert", "resnet50"}))
          .add("size", &Options::size, "As published, or small enough for any machine.",
               one_of({"full", "tiny"}))
          .add("device", &Options::device, "auto, cpu or cuda.")
          .add("precision", &Options::precision, "Mixed precision.", one_of({"no", "bf16", "fp16"}))
          .add("weights", &Options::weights, "File for the first weights and the batch.")
          .add("checkpoints", &Options::checkpoints, "Folder for checkpoints that are timed.")
          .add("program", &Options::program,
               "Runs what program_peer.py has left in this file, and trains nothing.")
          .add("graph", &Options::graph, "Records a step as a CUDA graph and replays it.")
          .add("rows", &Options::rows, "Rows of the batch.", at_least(1))
          .add("steps", &Options::steps, "Steps that are timed.", at_least(1))
          .add("warmup", &Options::warmup, "Steps before them.", at_least(0));
  return options;
}

StepBatch texts(std::int64_t rows, std::int64_t length, std::int64_t vocabulary) {
  const at::Tensor tokens = random_tokens(rows, length, vocabulary);
  return {tokens, tokens.roll(-1, 1).flatten()};
}

double milliseconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

/// From memory to the device, by two workers.
double batch_milliseconds(Accelerator& accelerator) {
  constexpr std::int64_t kRows = 64, kBatches = 4;
  constexpr int kEpochs = 10;
  const auto images =
      std::make_shared<TensorDataset>(Batch{{"image", torch::rand({kRows * kBatches, 3, 224, 224})}});
  DataLoader batches = accelerator.prepare(DataLoader(images, {.batch_size = kRows,
                                                               .num_workers = 2,
                                                               .pin_memory = accelerator.device().is_cuda(),
                                                               .non_blocking = true}));
  const double all = milliseconds_of([&] {
    at::Tensor sum;
    for (int epoch = 0; epoch < kEpochs; ++epoch)
      for (auto& batch : batches) sum = batch["image"].sum();
    sum.item();
  });
  return all / (kBatches * kEpochs);
}

template <class Model>
void train(Model model, const StepBatch& example, const Options& options) {
  // Images are laid out as cuDNN and oneDNN read them fastest.
  const bool channels_last = example.first.dim() == 4;
  Accelerator accelerator({.mixed_precision = mixed_precision_by_name(options.precision),
                           .device = options.device,
                           .channels_last = channels_last});
  if (!options.weights.empty() && accelerator.is_main_process()) save_start(options.weights, *model, example);
  const auto stream = options.graph ? graph_stream(accelerator.device()) : c10::OptionalStreamGuard();
  at::Tensor input = example.first.to(accelerator.device());
  if (channels_last) input = input.contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor target = example.second.to(accelerator.device());
  optim::AdamW adam(model->parameters(), {.lr = 1e-4});
  auto [net, optimizer] = accelerator.prepare(model, adam);
  const auto train_step = [&](const std::vector<at::Tensor>& inputs) {
    const at::Tensor scores = net(inputs[0]).to(at::kFloat);
    const at::Tensor loss =
        torch::nn::functional::cross_entropy(scores.view({-1, scores.size(-1)}), inputs[1]);
    accelerator.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    return std::vector{loss.detach()};
  };
  GraphedStep graphed(train_step);
  std::vector<at::Tensor> losses;
  auto begin = std::chrono::steady_clock::now();
  for (int step = 0; step < options.warmup + options.steps; ++step) {
    if (step == options.warmup) {
      if (step > 0) losses.back().item();  // Waits for the device.
      begin = std::chrono::steady_clock::now();
    }
    // A replay overwrites the results of the one before.
    losses.push_back(options.graph ? graphed({input, target})[0].clone() : train_step({input, target})[0]);
  }
  const auto values = torch::stack(losses).cpu();
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  nlohmann::json extras = nlohmann::json::object();
  if (!options.checkpoints.empty()) {
    const std::filesystem::path folder = options.checkpoints;
    extras["save_ms"] = milliseconds_of([&] { accelerator.save_state(folder / "first"); });
    // Memory for copies is made by the first of them.
    for (const char* name : {"first_stall_ms", "stall_ms"}) {
      extras[name] =
          milliseconds_of([&] { accelerator.save_state(folder / name, {}, {.asynchronous = true}); });
      accelerator.wait_for_save();
    }
    extras["batch_ms"] = batch_milliseconds(accelerator);
  }
  if (!accelerator.is_main_process()) return;
  nlohmann::json result{
      {"losses", std::vector<float>(values.data_ptr<float>(), values.data_ptr<float>() + values.numel())},
      {"step_ms", took.count() / options.steps},
      {"peak_bytes", peak_bytes(accelerator.device())}};
  result.update(extras);
  std::cout << result << std::endl;
}

/// One JSON line: the outputs of a program from Python.
int run_program_of_python(const Options& options) {
  const at::Device device(options.device);
  const at::Tensor rows = torch::linspace(-1, 1, 128).view({2, 64}).to(device);
  const at::NoGradGuard no_gradients;
  const bool is_compiled = options.program.ends_with(".pt2");
  const at::Tensor outputs = is_compiled ? models::CompiledModel(options.program)({rows}).front()
                                         : models::ScriptModel(options.program, device).forward(rows);
  const at::Tensor values = outputs.to(at::kCPU, at::kFloat).contiguous();
  const auto* const first = values.const_data_ptr<float>();
  std::cout << nlohmann::json(std::vector<float>(first, first + values.numel())) << std::endl;
  return 0;
}

int run(int argc, char** argv) {
  const Options options = table().parse(argc, argv).options;
  if (!options.program.empty()) return run_program_of_python(options);
  const bool full = options.size == "full";
  torch::manual_seed(1);
  if (options.model == "mlp") {
    torch::nn::Sequential layers;
    for (int i = 0; i < 32; ++i) {
      layers->push_back(torch::nn::Linear(64, 64));
      layers->push_back(torch::nn::ReLU());
    }
    train(layers, {torch::randn({options.rows, 64}), torch::randint(0, 64, {options.rows})}, options);
  } else if (options.model == "gpt2") {
    const auto config = gpt2_of_size(full);
    train(models::Gpt2LMHeadModel(config), texts(options.rows, config.n_positions, config.vocab_size),
          options);
  } else if (options.model == "bert") {
    const auto config = bert_of_size(full);
    const auto length = std::min<std::int64_t>(config.max_position_embeddings, 128);
    train(models::BertForSequenceClassification(config),
          {random_tokens(options.rows, length, config.vocab_size),
           torch::randint(0, 2, {options.rows}, torch::kLong)},
          options);
  } else {
    train(models::ResNet(resnet_of_size(full)), random_images(options.rows, full), options);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("model_step", [&] { return run(argc, argv); });
}
