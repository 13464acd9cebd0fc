// Measures inference over a data set on one device and on all devices, by batch size.

#include <torch/types.h>

#include <chrono>
#include <cstdio>
#include <iostream>

#include "lockstep/core/options.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "lockstep/models/bert.hpp"
#include "lockstep/parallel/data_parallel.hpp"

namespace {

using lockstep::models::BertConfig;
using lockstep::models::BertForSequenceClassification;

struct Options {
  std::int64_t rows = 512;
  std::int64_t tokens = 64;
  std::int64_t hidden_size = 64;
  std::int64_t layers = 2;
  int replicas = 2;
};

constexpr std::int64_t kBatchSizes[] = {32, 64, 128};

std::string text_of(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%8.3f", seconds);
  return text;
}

/// All CUDA devices; otherwise `replicas` replicas on the CPU.
std::vector<at::Device> devices_of(int replicas) {
  auto devices = lockstep::resolved({}).devices;
  if (devices.front().is_cpu()) devices.assign(static_cast<std::size_t>(replicas), at::Device(at::kCPU));
  return devices;
}

/// The logits of all rows, computed batch by batch, and the time in seconds.
template <class Model>
std::pair<at::Tensor, double> timed(Model& model, const at::Tensor& ids, std::int64_t batch_size,
                                    const at::Device& device) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<at::Tensor> logits;
  for (const auto& batch : ids.split(batch_size)) logits.push_back(model(batch.to(device)));
  at::Tensor all = torch::cat(logits).cpu();  // Waits for the device.
  return {all, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()};
}

int run(int argc, char** argv) {
  const auto table =
      lockstep::OptionTable<Options>("inference_table", "Inference on one device and on several.")
          .add("rows", &Options::rows, "Texts.", lockstep::at_least(1))
          .add("tokens", &Options::tokens, "Tokens of each.", lockstep::at_least(1))
          .add("hidden-size", &Options::hidden_size, "Width of the BERT.", lockstep::at_least(4))
          .add("layers", &Options::layers, "Layers of the BERT.", lockstep::at_least(1))
          .add("replicas", &Options::replicas, "Replicas where there is no CUDA device.",
               lockstep::at_least(1));
  const auto parsed = table.parse(argc, argv);
  if (parsed.help) return std::cout << table.help(), 0;
  const Options& options = parsed.options;

  const auto devices = devices_of(options.replicas);
  const BertConfig config{.vocab_size = 1000,
                          .hidden_size = options.hidden_size,
                          .num_hidden_layers = options.layers,
                          .num_attention_heads = 4,
                          .intermediate_size = 4 * options.hidden_size,
                          .max_position_embeddings = options.tokens};
  BertForSequenceClassification model(config);
  model->to(devices.front());
  model->eval();
  lockstep::DataParallel<BertForSequenceClassification> parallel(
      model, {.devices = devices}, [config] { return BertForSequenceClassification(config); });
  const at::Tensor ids = torch::randint(0, config.vocab_size, {options.rows, options.tokens}, torch::kLong);

  const torch::NoGradGuard no_grad;
  std::string single = "| one device    |",
              multiple = "| " + std::to_string(devices.size()) + " replicas    |";
  double difference = 0;
  for (const auto batch_size : kBatchSizes) {
    // Warm-up: the first batches also pay for one-time initialization.
    timed(model, ids.narrow(0, 0, std::min<std::int64_t>(batch_size, options.rows)), batch_size,
          devices.front());
    timed(parallel, ids.narrow(0, 0, std::min<std::int64_t>(batch_size, options.rows)), batch_size,
          devices.front());
    const auto [one, one_seconds] = timed(model, ids, batch_size, devices.front());
    const auto [all, all_seconds] = timed(parallel, ids, batch_size, devices.front());
    single += text_of(one_seconds) + " |";
    multiple += text_of(all_seconds) + " |";
    difference = std::max(difference, (one - all).abs().max().item<double>());
  }
  std::cout << "seconds for " << options.rows << " texts, by batch size\n\n"
            << "| method        |       32 |       64 |      128 |\n"
            << "| ------------- | -------- | -------- | -------- |\n"
            << single << '\n'
            << multiple << "\n\n"
            << (difference < 1e-4 ? "the logits are the same" : "THE LOGITS DIFFER") << '\n';
  return difference < 1e-4 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_program("inference_table", [&] { return run(argc, argv); });
}
