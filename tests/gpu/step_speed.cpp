// Times the training steps of a model as programs train it: by a plain loop or by Trainer, eagerly or as CUDA
// graphs. Prints one JSON line: the first losses, the milliseconds of a step (the median of five windows),
// the seconds of the first one, and the memory of the device at its peak. --trace FILE also records three
// steps by the profiler, for the table of kernels. --weights FILE keeps the first weights and the batch for
// Python.

#include <torch/nn/functional/loss.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "gpu/step_models.hpp"
#include "lockstep/core/options.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "lockstep/models/token_loss_model.hpp"
#include "lockstep/models/trainer_model.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/train/accelerator.hpp"
#include "lockstep/train/graphed_step.hpp"
#include "lockstep/train/profiler.hpp"
#include "lockstep/train/trainer.hpp"

namespace {

using namespace lockstep;
using Seconds = std::chrono::duration<double>;

constexpr int kWindows = 5;
/// Of a trace: one to warm up, and those that count.
constexpr int kTracedSteps = 4;

struct Options {
  std::string model = "gpt2";
  std::string size = "tiny";
  std::string device = "auto";
  std::string precision = "no";
  std::string loop = "plain";
  std::string cuda_graphs = "off";
  std::string weights;
  std::string trace;
  bool cudnn_benchmark = false;
  int rows = 2;
  int warmup = 3;
  int window_steps = 2;
};

const OptionTable<Options>& table() {
  static const auto options =
      OptionTable<Options>("step_speed", "Times the training steps of a model.")
          .add("model", &Options::model, "What is trained.", one_of({"gpt2", "bert", "resnet50"}))
          .add("size", &Options::size, "As published, or small enough for any machine.",
               one_of({"full", "tiny"}))
          .add("device", &Options::device, "auto, cpu or cuda.")
          .add("precision", &Options::precision, "Mixed precision.", one_of({"no", "bf16", "fp16"}))
          .add("loop", &Options::loop, "The program's own loop, or Trainer's.", one_of({"plain", "trainer"}))
          .add("cuda-graphs", &Options::cuda_graphs, "Whether steps are recorded as CUDA graphs.",
               one_of({"auto", "on", "off"}))
          .add("weights", &Options::weights, "File for the first weights and the batch.")
          .add("trace", &Options::trace, "Folder for a trace of three steps.")
          .add("cudnn-benchmark", &Options::cudnn_benchmark, "cuDNN tries its algorithms first.")
          .add("rows", &Options::rows, "Rows of the batch.", at_least(1))
          .add("warmup", &Options::warmup, "Steps before those that are timed; their losses are printed.",
               at_least(1))
          .add("window-steps", &Options::window_steps, "Steps of each of the five windows.", at_least(1));
  return options;
}

/// Hears of every step that has ended.
class StepClock {
 public:
  StepClock(const Options& options, const at::Device& device) : options_(options), device_(device) {}

  int steps() const {
    return options_.warmup + kWindows * options_.window_steps + (options_.trace.empty() ? 0 : kTracedSteps);
  }

  void finish_step(const at::Tensor& loss) {
    ++done_;
    if (done_ <= options_.warmup) losses_.push_back(loss.detach().clone());
    const int timed = done_ - options_.warmup;
    if (done_ == 1) first_step_ = elapsed();
    if (profiler_) {
      synchronize(device_);
      profiler_->step();
    }
    if (timed < 0 || timed > kWindows * options_.window_steps || timed % options_.window_steps != 0) return;
    const double now = elapsed();
    if (timed > 0) windows_.push_back((now - window_begin_) / options_.window_steps);
    if (timed == kWindows * options_.window_steps && !options_.trace.empty()) {
      profiler_.emplace(ProfileOptions{.schedule_option = {.warmup = 1, .active = kTracedSteps - 1},
                                       .output_trace_dir = options_.trace},
                        0);
    }
    window_begin_ = elapsed();
  }

  nlohmann::json result() {
    profiler_.reset();
    std::sort(windows_.begin(), windows_.end());
    const at::Tensor losses = torch::stack(losses_).to(at::kCPU, at::kFloat).contiguous();
    const auto* const first = losses.const_data_ptr<float>();
    return {{"losses", std::vector<float>(first, first + losses.numel())},
            {"first_step_s", first_step_},
            {"step_ms", windows_[kWindows / 2] * 1000},
            {"fastest_ms", windows_.front() * 1000},
            {"slowest_ms", windows_.back() * 1000},
            {"peak_bytes", peak_bytes(device_)}};
  }

 private:
  /// Since the begin, when the device has done all.
  double elapsed() const {
    synchronize(device_);
    return Seconds(std::chrono::steady_clock::now() - begin_).count();
  }

  const Options& options_;
  at::Device device_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  int done_ = 0;
  double first_step_ = 0, window_begin_ = 0;
  std::vector<double> windows_;
  std::vector<at::Tensor> losses_;
  std::optional<Profiler> profiler_;
};

/// The same rows again and again, as a data set of many steps.
class RepeatedRows final : public Dataset {
 public:
  RepeatedRows(Batch rows, std::int64_t size) : rows_(std::move(rows)), size_(size) {}
  std::int64_t size() const override { return size_; }
  Example get(std::int64_t index, const SampleContext& context) const override {
    return rows_.get(index % rows_.size(), context);
  }
  Batch get_batch(std::span<const std::int64_t> indices,
                  std::span<const SampleContext> contexts) const override {
    std::vector<std::int64_t> within;
    for (const auto index : indices) within.push_back(index % rows_.size());
    return rows_.get_batch(within, contexts);
  }

 private:
  TensorDataset rows_;
  std::int64_t size_;
};

class ClockCallback final : public TrainerCallback {
 public:
  explicit ClockCallback(StepClock& clock) : clock_(clock) {}
  void on_step_end(CallbackContext& event) override {
    const Loss& loss = event.trainer.last_loss();
    clock_.finish_step(loss.weight ? loss.value / loss.weight->tensor() : loss.value);
  }

 private:
  StepClock& clock_;
};

TrainingArguments arguments_of(const Options& options, int steps) {
  TrainingArguments arguments;
  arguments.output_dir = (std::filesystem::temp_directory_path() / "step_speed").string();
  arguments.resume_from_checkpoint = "never";
  arguments.per_device_train_batch_size = options.rows;
  arguments.max_steps = steps;
  arguments.learning_rate = 1e-4;
  arguments.lr_scheduler_type = "constant";
  arguments.max_grad_norm = 0;
  arguments.bf16 = options.precision == "bf16";
  arguments.fp16 = options.precision == "fp16";
  arguments.device = options.device;
  arguments.logging_strategy = IntervalStrategy::no;
  arguments.save_strategy = SaveStrategy::no;
  arguments.disable_tqdm = true;
  arguments.train_sampling_strategy = SamplingStrategy::sequential;
  arguments.dataloader_num_workers = 4;
  arguments.non_blocking = true;
  return arguments;
}

AcceleratorOptions accelerator_of(const Options& options) {
  return {.mixed_precision = mixed_precision_by_name(options.precision),
          .device = options.device,
          .cudnn_benchmark = options.cudnn_benchmark,
          .channels_last = options.model == "resnet50"};
}

template <class Model>
void run_plain(const Options& options, Model model, const std::vector<at::Tensor>& given,
               const auto& loss_of) {
  Accelerator accelerator(accelerator_of(options));
  const bool graphs = options.cuda_graphs != "off";
  const auto stream = graphs ? graph_stream(accelerator.device()) : c10::OptionalStreamGuard();
  std::vector<at::Tensor> inputs;
  for (const auto& input : given) inputs.push_back(input.to(accelerator.device()));
  if (inputs[0].dim() == 4) inputs[0] = inputs[0].contiguous(at::MemoryFormat::ChannelsLast);
  optim::AdamW adam(model->parameters(), {.lr = 1e-4, .weight_decay = 0});
  auto [net, optimizer] = accelerator.prepare(model, adam);
  const auto train_step = [&](const std::vector<at::Tensor>& tensors) {
    const auto [loss, weight] = loss_of(net, tensors);
    if (weight.defined()) {
      accelerator.backward(loss, weight);
    } else {
      accelerator.backward(loss);
    }
    optimizer.step();
    optimizer.zero_grad();
    return std::vector{(weight.defined() ? loss / weight : loss).detach()};
  };
  GraphedStep graphed(train_step);
  StepClock clock(options, accelerator.device());
  for (int step = 0; step < clock.steps(); ++step)
    clock.finish_step(graphs ? graphed(inputs)[0] : train_step(inputs)[0]);
  std::cout << clock.result() << std::endl;
}

void run_trainer(const Options& options, std::shared_ptr<ModelAdapter> model, Batch rows,
                 std::function<Loss(const Batch&, const Batch&)> compute_loss = nullptr) {
  const Accelerator accelerator(accelerator_of(options));
  StepClock clock(options, accelerator.device());
  Trainer trainer(accelerator, arguments_of(options, clock.steps()),
                  {.model = std::move(model),
                   .train_dataset = std::make_shared<RepeatedRows>(
                       std::move(rows), std::int64_t{options.rows} * clock.steps()),
                   .compute_loss = std::move(compute_loss),
                   .callbacks = {std::make_shared<ClockCallback>(clock)}});
  trainer.train();
  std::cout << clock.result() << std::endl;
}

at::Tensor mean_loss(const at::Tensor& logits, const at::Tensor& labels) {
  return torch::nn::functional::cross_entropy(logits.to(at::kFloat), labels);
}

/// Classes of one input.
template <class Model>
void train_classifier(const Options& options, Model model, const char* column, const StepBatch& batch) {
  if (!options.weights.empty()) save_start(options.weights, *model, batch);
  if (options.loop == "plain") {
    return run_plain(options, model, {batch.first, batch.second}, [](auto& net, const auto& inputs) {
      return std::pair{mean_loss(net(inputs[0]), inputs[1]), at::Tensor()};
    });
  }
  run_trainer(options,
              wrap_model(model,
                         [column](auto& net, const Batch& rows) {
                           return Batch{{"logits", net(rows[column])}};
                         }),
              Batch{{column, batch.first}, {"labels", batch.second}},
              [](const Batch& outputs, const Batch& rows) {
                return Loss{mean_loss(outputs["logits"], rows["labels"])};
              });
}

void train_language_model(const Options& options) {
  const auto config = gpt2_of_size(options.size == "full");
  const models::CausalLM model(std::shared_ptr<models::CausalLMImpl>(models::Gpt2LMHeadModel(config).ptr()));
  const at::Tensor ids = random_tokens(options.rows, config.n_positions, config.vocab_size);
  if (!options.weights.empty())
    save_start(options.weights, *model, {ids, models::next_labels(ids).flatten().clone()});
  if (options.loop == "trainer")
    return run_trainer(options, models::trainer_model(model), Batch{{"input_ids", ids}, {"labels", ids}});
  run_plain(options, models::TokenLossModel(model), {ids}, [](auto& net, const auto& inputs) {
    const auto losses = net(models::LabelledTexts{.input_ids = inputs[0], .labels = inputs[0]});
    return std::pair{losses.loss_sum, losses.loss_weight};
  });
}

int run(int argc, char** argv) {
  const Options options = table().parse(argc, argv).options;
  const bool full = options.size == "full";
  torch::manual_seed(1);
  if (options.model == "gpt2") {
    train_language_model(options);
  } else if (options.model == "bert") {
    const auto config = bert_of_size(full);
    const auto length = std::min<std::int64_t>(config.max_position_embeddings, 128);
    train_classifier(options, models::BertForSequenceClassification(config), "input_ids",
                     {random_tokens(options.rows, length, config.vocab_size),
                      torch::randint(0, 2, {options.rows}, torch::kLong)});
  } else {
    train_classifier(options, models::ResNet(resnet_of_size(full)), "image",
                     random_images(options.rows, full));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("step_speed", [&] { return run(argc, argv); });
}
