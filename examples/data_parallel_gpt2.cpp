// GPT-2 on the contexts of SQuAD, data parallel: OSLO's data parallelism tutorial, step by step.

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"
#include "lockstep/core/options.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "lockstep/data/data_loader.hpp"
#include "lockstep/models/auto_model.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "lockstep/parallel/parallel_context.hpp"
#include "lockstep/tokenizers/tokenizer.hpp"

namespace {

namespace fs = std::filesystem;
using lockstep::ParallelMode;
using lockstep::models::AutoModelForCausalLM;
using lockstep::models::CausalLM;

struct Options {
  std::string data;
  std::string model;
  std::string output_dir = "out/gpt2";
  std::int64_t batch_size = 4;
  std::int64_t seq_len = 64;
  std::int64_t save_interval = 50;
  std::int64_t train_steps = 100;
  double learning_rate = 3e-5;
};

const auto& option_table() {
  static const auto table =
      lockstep::OptionTable<Options>("data_parallel_gpt2", "Trains GPT-2 on the contexts of SQuAD.")
          .add("data", &Options::data, "File in SQuAD's form (JSON).", lockstep::required())
          .add("model", &Options::model,
               "Folder of a GPT-2 or OPT, as the hub has it. Without it: a small new GPT-2 over bytes.")
          .add("output-dir", &Options::output_dir, "Folder for the trained models, with one folder per save.")
          .add("batch-size", &Options::batch_size, "Texts per rank in a step.", lockstep::at_least(1))
          .add("seq-len", &Options::seq_len, "Maximum tokens per text; longer texts are truncated.",
               lockstep::at_least(2))
          .add("save-interval", &Options::save_interval, "Steps between saves.", lockstep::at_least(1))
          .add("train-steps", &Options::train_steps, "Steps.", lockstep::at_least(1))
          .add("learning-rate", &Options::learning_rate, "Of Adam.", lockstep::more_than(0.0));
  return table;
}

std::vector<std::string> contexts_of(const fs::path& path, std::size_t at_most) {
  std::ifstream file(path);
  const auto document = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded() || !document.contains("data"))
    throw lockstep::DataError("'" + path.string() + "' is not in SQuAD's form: expected JSON with \"data\"");
  std::vector<std::string> contexts;
  for (const auto& article : document["data"]) {
    for (const auto& paragraph : article.at("paragraphs")) {
      if (contexts.size() < at_most) contexts.push_back(paragraph.at("context"));
    }
  }
  return contexts;
}

/// The tokenizer of --model, which cuts long texts as its folder says.
std::optional<lockstep::Tokenizer> read_tokenizer(const Options& options) {
  if (options.model.empty()) return std::nullopt;
  const auto tokenizer = lockstep::Tokenizer::from_pretrained(options.model);
  return tokenizer.with_truncation({{.max_length = static_cast<std::size_t>(options.seq_len),
                                     .side = tokenizer.settings().truncation_side}});
}

/// Token ids of all texts, [texts, seq_len], padded with `padding`, whose labels are -100.
std::shared_ptr<lockstep::TensorDataset> tokenized(const std::vector<std::string>& texts,
                                                   const Options& options, std::int64_t padding) {
  const auto rows = static_cast<std::int64_t>(texts.size());
  const at::Tensor ids = torch::full({rows, options.seq_len}, padding, torch::kLong);
  const at::Tensor labels = torch::full({rows, options.seq_len}, -100, torch::kLong);
  const auto tokenizer = read_tokenizer(options);
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto& text = texts[static_cast<std::size_t>(row)];
    std::vector<std::int64_t> tokens;
    for (const unsigned char byte : tokenizer ? std::string() : text) tokens.push_back(byte);
    if (tokenizer) tokens = tokenizer->encode(text).ids;
    tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(options.seq_len)));
    const auto count = static_cast<std::int64_t>(tokens.size());
    ids[row].narrow(0, 0, count).copy_(torch::tensor(tokens));
    labels[row].narrow(0, 0, count).copy_(torch::tensor(tokens));
  }
  return std::make_shared<lockstep::TensorDataset>(lockstep::Batch{{"input_ids", ids}, {"labels", labels}});
}

CausalLM make_model(const Options& options) {
  if (!options.model.empty()) return AutoModelForCausalLM::from_pretrained(options.model);
  torch::manual_seed(0);
  return AutoModelForCausalLM::from_config(
      {.model_type = "gpt2",
       .vocab_size = 257,
       .max_position_embeddings = options.seq_len,
       .bos_token_id = 256,
       .eos_token_id = 256},
      {.hidden_size = 64, .num_hidden_layers = 2, .num_attention_heads = 4});
}

int run(int argc, char** argv) {
  const auto parsed = option_table().parse(argc, argv);
  if (parsed.help) return std::cout << option_table().help(), 0;
  const Options& options = parsed.options;

  // 1.2 model and optimizer
  CausalLM model = make_model(options);
  lockstep::optim::Adam optimizer(model->parameters(), {.lr = options.learning_rate});

  // 1.3 parallelize the model
  const auto context = lockstep::ParallelContext::from_environment();
  lockstep::DistributedDataParallel ddp(model, context);
  const bool is_main = context.is_first_rank(ParallelMode::global);

  // 1.4 load the data set and create the loader
  const auto texts =
      contexts_of(options.data, static_cast<std::size_t>(options.train_steps * options.batch_size));
  const auto dataset = tokenized(texts, options, model->model_config().bos_token_id.value_or(0));
  const auto sampler = std::make_shared<lockstep::DistributedSampler>(
      dataset->size(),
      lockstep::DistributedSamplerOptions{.num_replicas = context.get_world_size(ParallelMode::data),
                                          .rank = context.get_local_rank(ParallelMode::data)});
  lockstep::DataLoader loader(dataset, {.batch_size = options.batch_size, .sampler = sampler});

  // 1.5 do training as usual
  at::Tensor first_loss, loss;
  std::int64_t step = 0;
  while (step < options.train_steps) {
    for (auto& batch : loader) {
      ddp.zero_grad();
      loss = lockstep::models::causal_lm_loss(ddp(batch["input_ids"]), batch["labels"]);
      loss.backward();
      optimizer.step();
      if (++step == 1) first_loss = loss.detach().clone();
      // 1.6 save the parallelised model
      if (step % options.save_interval == 0 && is_main)
        lockstep::models::save_pretrained(model,
                                          fs::path(options.output_dir) / ("step-" + std::to_string(step)));
      if (step == options.train_steps) break;
    }
  }
  const auto mean = [&](const at::Tensor& value) {
    const at::Tensor sum = value.detach().clone();
    context.get_group(ParallelMode::data).all_reduce(sum, lockstep::ReduceOp::avg);
    return sum.item<double>();
  };
  const double begin = mean(first_loss), end = mean(loss);
  context.get_group(ParallelMode::global).barrier();
  if (is_main) {
    std::cout << "data parallel over " << context.get_world_size(ParallelMode::data) << " rank(s): " << step
              << " steps, loss " << begin << " -> " << end << '\n';
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_program("data_parallel_gpt2", [&] { return run(argc, argv); });
}
