// Fine-tunes a BERT to classify reviews as positive or negative with DataParallel: the plain PyTorch loop.

#include <torch/nn.h>

#include <fstream>
#include <iostream>
#include <set>
#include <sstream>

#include "lockstep/core/error.hpp"
#include "lockstep/core/options.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "lockstep/data/data_loader.hpp"
#include "lockstep/datasets/arrow_dataset.hpp"
#include "lockstep/models/bert.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/parallel/data_parallel.hpp"
#include "lockstep/tokenizers/tokenizer.hpp"

namespace {

namespace fs = std::filesystem;
namespace F = torch::nn::functional;
using lockstep::Tokenizer;
using lockstep::models::BertConfig;
using lockstep::models::BertForSequenceClassification;

struct Options {
  std::string data;
  std::string text_column = "review";
  std::string label_column = "division";
  std::string model;
  std::string output_dir = "out/reviews";
  std::int64_t epochs = 1;
  std::int64_t batch_size = 32;
  std::int64_t max_length = 32;
  std::int64_t log_steps = 20;
  double learning_rate = 2e-5;
  int replicas = 2;
};

const auto& option_table() {
  static const auto table =
      lockstep::OptionTable<Options>("text_classification_loop", "Tells positive reviews from negative ones.")
          .add("data", &Options::data, "CSV, JSON lines, Parquet or Arrow file.", lockstep::required())
          .add("text-column", &Options::text_column, "The column of the texts.")
          .add("label-column", &Options::label_column,
               "The column that says positive or negative; other rows are left out.")
          .add("model", &Options::model,
               "Folder of a BERT, as the hub has it. Without it: a small new one over the words of the data.")
          .add("output-dir", &Options::output_dir, "Folder for the trained model.")
          .add("epochs", &Options::epochs, "Passes over the training set.", lockstep::at_least(1))
          .add("batch-size", &Options::batch_size, "Texts in a step of all devices.", lockstep::at_least(1))
          .add("max-length", &Options::max_length, "Tokens of a text.", lockstep::at_least(3))
          .add("log-steps", &Options::log_steps, "Steps between lines.", lockstep::at_least(1))
          .add("learning-rate", &Options::learning_rate, "Of Adam.", lockstep::more_than(0.0))
          .add("replicas", &Options::replicas, "Replicas where there is no CUDA device.",
               lockstep::at_least(1));
  return table;
}

/// The classifier and its loss in one module, like transformers' models: each replica returns its own loss
/// and its logits.
struct WithLossImpl : torch::nn::Module {
  explicit WithLossImpl(BertForSequenceClassification classifier)
      : model(register_module("model", std::move(classifier))) {}

  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& ids, const at::Tensor& mask,
                                             const at::Tensor& labels) {
    const at::Tensor logits = model(ids, mask);
    return {F::cross_entropy(logits, labels), logits};
  }

  BertForSequenceClassification model;
};
TORCH_MODULE(WithLoss);

struct Reviews {
  std::vector<std::string> texts;
  std::vector<std::int64_t> labels;
};

Reviews read_reviews(const Options& options) {
  const auto data = lockstep::ArrowDataset::load(options.data);
  const auto texts = data.column<std::string_view>(options.text_column);
  const auto divisions = data.column<std::string_view>(options.label_column);
  Reviews reviews;
  for (std::int64_t i = 0; i < data.num_rows(); ++i) {
    if (divisions[i] != "positive" && divisions[i] != "negative") continue;
    reviews.texts.emplace_back(texts[i]);
    reviews.labels.push_back(divisions[i] == "negative" ? 1 : 0);
  }
  if (reviews.texts.size() < 20) throw lockstep::DataError(options.data + ": expected 20 reviews or more");
  return reviews;
}

/// The model's vocabulary, or one of all words in the texts.
Tokenizer make_tokenizer(const Options& options, const std::vector<std::string>& texts) {
  if (!options.model.empty()) return Tokenizer::from_pretrained(options.model);
  std::set<std::string> words;
  for (std::string text : texts) {
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) {
      return static_cast<char>(std::isalnum(c) != 0 ? std::tolower(c) : ' ');
    });
    std::istringstream stream(text);
    for (std::string word; stream >> word;) words.insert(word);
  }
  const fs::path path = fs::path(options.output_dir) / "vocab.txt";
  std::ofstream file(path);
  file << "[PAD]\n[UNK]\n[CLS]\n[SEP]\n";
  for (const auto& word : words) file << word << '\n';
  file.close();
  return Tokenizer::from_vocab(path);
}

std::shared_ptr<lockstep::TensorDataset> tokenized(const Reviews& reviews, const Tokenizer& tokenizer,
                                                   const Options& options) {
  const auto length = static_cast<std::size_t>(options.max_length);
  const auto encodings =
      tokenizer.with_truncation({{.max_length = length}})
          .with_padding({{.length = length, .id = tokenizer.special_token_id("pad_token").value_or(0)}})
          .encode_batch(reviews.texts);
  std::vector<at::Tensor> ids, masks;
  for (const auto& encoding : encodings) {
    ids.push_back(torch::tensor(encoding.ids));
    masks.push_back(torch::tensor(encoding.attention_mask));
  }
  return std::make_shared<lockstep::TensorDataset>(lockstep::Batch{
      {"ids", torch::stack(ids)}, {"mask", torch::stack(masks)}, {"label", torch::tensor(reviews.labels)}});
}

BertForSequenceClassification make_model(const Options& options, const Tokenizer& tokenizer) {
  if (!options.model.empty()) return lockstep::models::load_bert_classifier(options.model, 2);
  return BertForSequenceClassification(
      BertConfig{.vocab_size = static_cast<std::int64_t>(tokenizer.vocab_size()),
                 .hidden_size = 32,
                 .num_hidden_layers = 2,
                 .num_attention_heads = 4,
                 .intermediate_size = 64,
                 .max_position_embeddings = options.max_length});
}

double evaluate(lockstep::DataParallel<WithLoss>& model, lockstep::DataLoader& loader) {
  const torch::NoGradGuard no_grad;
  model->eval();
  std::int64_t right = 0, count = 0;
  for (auto& batch : loader) {
    const auto [losses, logits] = model(batch["ids"], batch["mask"], batch["label"]);
    right += (logits.argmax(-1).cpu() == batch["label"]).sum().item<std::int64_t>();
    count += batch.size();
  }
  return static_cast<double>(right) / static_cast<double>(count);
}

void train_epoch(lockstep::DataParallel<WithLoss>& model, torch::optim::Optimizer& optimizer,
                 lockstep::DataLoader& loader, const Options& options) {
  model->train();
  std::int64_t step = 0;
  for (auto& batch : loader) {  // Batches stay on the CPU: DataParallel copies each chunk to its device.
    optimizer.zero_grad();
    const auto [losses, logits] = model(batch["ids"], batch["mask"], batch["label"]);
    const at::Tensor loss = losses.mean();  // One loss per device.
    loss.backward();
    optimizer.step();
    if (step++ % options.log_steps == 0)
      std::cout << "epoch " << loader.epoch() + 1 << " step " << step - 1 << " loss " << loss.item<double>()
                << '\n';
  }
}

int run(int argc, char** argv) {
  const auto parsed = option_table().parse(argc, argv);
  if (parsed.help) return std::cout << option_table().help(), 0;
  const Options& options = parsed.options;
  fs::create_directories(options.output_dir);
  torch::manual_seed(0);

  const Reviews reviews = read_reviews(options);
  const Tokenizer tokenizer = make_tokenizer(options, reviews.texts);
  const auto all = tokenized(reviews, tokenizer, options);
  const std::int64_t valid = all->size() / 10;
  const auto parts = lockstep::random_split(all, std::array{all->size() - valid, valid}, 0);
  lockstep::DataLoader train_loader(parts[0],
                                    {.batch_size = options.batch_size, .shuffle = true, .drop_last = true});
  lockstep::DataLoader valid_loader(parts[1], {.batch_size = options.batch_size});

  auto devices = lockstep::resolved({}).devices;
  if (devices.front().is_cpu()) devices.assign(static_cast<std::size_t>(options.replicas), at::kCPU);
  auto classifier = make_model(options, tokenizer);
  WithLoss with_loss(classifier);
  with_loss->to(devices.front());
  lockstep::DataParallel<WithLoss> model(with_loss, {.devices = devices}, [&] {
    return WithLoss(BertForSequenceClassification(classifier->config()));
  });
  lockstep::optim::Adam optimizer(model->parameters(), {.lr = options.learning_rate});

  double accuracy = 0;
  for (std::int64_t epoch = 1; epoch <= options.epochs; ++epoch) {
    train_epoch(model, optimizer, train_loader, options);
    accuracy = evaluate(model, valid_loader);
    std::cout << "epoch " << epoch << " accuracy " << accuracy << '\n';
  }
  lockstep::models::save_pretrained(classifier, options.output_dir);
  std::cout << "trained on " << parts[0]->size() << " reviews with " << devices.size()
            << " replicas; accuracy on " << valid << ": " << accuracy << '\n';
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_program("text_classification_loop", [&] { return run(argc, argv); });
}
