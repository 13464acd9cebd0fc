// Translates a data set on several devices at once: map(with_rank=True, num_proc=devices) of Python's
// datasets, with a model that each worker sets up once instead of per batch.

#include <torch/types.h>

#include <atomic>
#include <iostream>
#include <nlohmann/json.hpp>

#include "lockstep/core/options.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "lockstep/datasets/map.hpp"
#include "lockstep/models/auto_model.hpp"
#include "lockstep/tokenizers/tokenizer.hpp"
#include "lockstep/train/accelerator.hpp"

namespace {

namespace fs = std::filesystem;
namespace models = lockstep::models;
using lockstep::MapBatch;
using lockstep::Tokenizer;
using lockstep::Worker;

struct Options {
  std::string data;
  std::string column = "text";
  std::string model;
  std::string src_lang;
  std::string tgt_lang;
  std::string folder = "out/translated";
  int batch_size = 12;
  int num_proc = 0;
  std::int64_t max_new_tokens = 200;
};

/// Bytes as tokens of the small model, after its four special tokens.
constexpr std::int64_t kFirstByte = 4;
constexpr std::int64_t kLongest = 64;

/// Without --model: a small new one of NLLB's family over bytes, written once for all workers.
void write_model(const fs::path& folder) {
  torch::manual_seed(1);
  const auto model = models::AutoModelForSeq2SeqLM::from_config(
      {.model_type = "m2m_100",
       .vocab_size = 256 + kFirstByte,
       .max_position_embeddings = kLongest,
       .pad_token_id = 1,
       .bos_token_id = 0,
       .eos_token_id = 2,
       .decoder_start_token_id = 2},
      {.hidden_size = 32, .num_hidden_layers = 1, .num_attention_heads = 4});
  models::save_pretrained(model, folder);
}

/// Texts as the model's tokens, and back: the tokenizer of its folder, or bytes for the small model.
class Words {
 public:
  Words(const Options& options, std::int64_t padding) : padding_(padding) {
    if (options.model.empty()) return;
    lockstep::tokenizer::PretrainedOptions languages;
    if (!options.src_lang.empty()) languages.src_lang = options.src_lang;
    if (!options.tgt_lang.empty()) languages.tgt_lang = options.tgt_lang;
    tokenizer_ = Tokenizer::from_pretrained(options.model, languages).with_truncation({{.max_length = 512}});
    // A translation begins with its language.
    if (!options.tgt_lang.empty()) language_ = tokenizer_->token_to_id(options.tgt_lang);
  }

  /// Tokens [texts, longest], padded at the end.
  at::Tensor encode(const std::vector<std::string>& texts) const {
    std::vector<std::vector<std::int64_t>> rows;
    for (const auto& text : texts) {
      std::vector<std::int64_t> row;
      if (tokenizer_) row = tokenizer_->encode(text).ids;
      for (const unsigned char byte : tokenizer_ ? std::string() : text.substr(0, kLongest))
        row.push_back(kFirstByte + byte);
      rows.push_back(std::move(row));
    }
    std::size_t longest = 1;
    for (const auto& row : rows) longest = std::max(longest, row.size());
    for (auto& row : rows) row.resize(longest, padding_);
    std::vector<at::Tensor> tensors;
    for (const auto& row : rows) tensors.push_back(torch::tensor(row, torch::kLong));
    return torch::stack(tensors);
  }

  std::string decode(const at::Tensor& tokens) const {
    const auto* first = tokens.const_data_ptr<std::int64_t>();
    if (tokenizer_) return tokenizer_->decode({first, first + tokens.numel()});
    std::string text;  // Printable for any bytes.
    for (std::int64_t i = 1; i < tokens.numel(); ++i) {
      if (first[i] >= kFirstByte) text += static_cast<char>(' ' + (first[i] - kFirstByte) % 94);
    }
    return text;
  }

  std::optional<std::int64_t> language() const { return language_; }

 private:
  std::int64_t padding_;
  std::optional<Tokenizer> tokenizer_;
  std::optional<std::int64_t> language_;
};

models::Seq2SeqLM read_model(const fs::path& folder, const at::Device& device) {
  auto model = models::AutoModelForSeq2SeqLM::from_pretrained(folder);
  model->to(device);
  model->eval();
  return model;
}

/// One worker's model, on its device, with its tokenizer.
class Translator {
 public:
  Translator(const fs::path& folder, const Options& options, const Worker& worker)
      : options_(options),
        device_(worker.device),
        model_(read_model(folder, device_)),
        padding_(model_->model_config().pad_token_id.value()),
        words_(options, padding_) {}

  std::vector<std::string> operator()(const MapBatch& batch) {
    const torch::NoGradGuard no_grad;
    const auto column = batch.column<std::string_view>(options_.column);
    std::vector<std::string> texts;
    for (std::int64_t row = 0; row < batch.size(); ++row) texts.emplace_back(column[row]);
    const at::Tensor ids = words_.encode(texts);
    const at::Tensor mask = (ids != padding_).to(torch::kLong);
    const at::Tensor out = models::generate(model_, ids.to(device_), mask.to(device_),
                                            {.max_new_tokens = options_.max_new_tokens,
                                             .forced_bos_token_id = words_.language()})
                               .cpu();
    std::vector<std::string> translations;
    for (const auto& row : out.unbind(0)) translations.push_back(words_.decode(row.contiguous()));
    return translations;
  }

 private:
  const Options& options_;
  at::Device device_;
  models::Seq2SeqLM model_;
  std::int64_t padding_;
  Words words_;
};

const auto& option_table() {
  static const auto table =
      lockstep::OptionTable<Options>("map_with_rank", "Translates a column of a data set on all workers.")
          .add("data", &Options::data, "Arrow, Parquet, CSV, JSON lines or text file.", lockstep::required())
          .add("column", &Options::column, "The column with the texts.")
          .add("model", &Options::model,
               "Folder of an NLLB, mBART or other translation model, as the hub has it. Without it: a small "
               "new "
               "one over bytes.")
          .add("src-lang", &Options::src_lang, "Language of the texts, as the tokenizer names it: eng_Latn.")
          .add("tgt-lang", &Options::tgt_lang, "Language of the translations: deu_Latn.")
          .add("folder", &Options::folder, "Folder for model, cache and result.")
          .add("batch-size", &Options::batch_size, "Texts in a batch.", lockstep::at_least(1))
          .add("max-new-tokens", &Options::max_new_tokens, "Tokens of a translation.", lockstep::at_least(1))
          .add("num-proc", &Options::num_proc, "Workers of each process; 0: as map() chooses.",
               lockstep::at_least(0));
  return table;
}

/// Numbers of setups and batches in this process.
struct Counts {
  std::atomic<std::int64_t> setups = 0;
  std::atomic<std::int64_t> batches = 0;
};

lockstep::ArrowDataset translate(const lockstep::Accelerator& accelerator, const Options& options,
                                 const fs::path& model, Counts& counts) {
  auto ranks = lockstep::distributed_context(accelerator.world(), accelerator.process_group());
  ranks.device = accelerator.device().str();
  return lockstep::map(
      lockstep::ArrowDataset::load(options.data),
      [&](const Worker& worker) {
        ++counts.setups;
        return Translator(model, options, worker);
      },
      [&](const MapBatch& batch, Translator& translator, const Worker&) -> lockstep::Columns {
        ++counts.batches;
        return {{"translation", lockstep::make_column(translator(batch))}};
      },
      {.name = "translate",
       .version = "1",
       .parameters = nlohmann::json{{"column", options.column},
                                    {"src_lang", options.src_lang},
                                    {"tgt_lang", options.tgt_lang},
                                    {"max_new_tokens", options.max_new_tokens}}
                         .dump(),
       .input_files = {model},
       .batch_size = options.batch_size,
       .ranks = ranks,
       .num_proc = options.num_proc,
       .shard_rows = options.batch_size,
       .cache_folder = fs::path(options.folder) / "cache",
       .load_from_cache = false,
       .progress = false});
}

int run(int argc, char** argv) {
  const auto parsed = option_table().parse(argc, argv);
  if (parsed.help) return std::cout << option_table().help(), 0;
  const fs::path folder = parsed.options.folder;
  const bool is_given = !parsed.options.model.empty();
  const fs::path model = is_given ? fs::path(parsed.options.model) : folder / "model";

  const lockstep::Accelerator accelerator;
  accelerator.on_main_process([&] {
    fs::create_directories(folder);
    if (!is_given) write_model(model);
  });
  Counts counts;
  const auto translated = translate(accelerator, parsed.options, model, counts);
  accelerator.on_main_process([&] { translated.to_json(folder / "translated.jsonl"); });
  const at::Tensor sums = accelerator.reduce(torch::tensor({counts.setups.load(), counts.batches.load()}));
  accelerator.print(translated.num_rows(), " rows translated in ", sums[1].item<std::int64_t>(),
                    " batches; the model was set up ", sums[0].item<std::int64_t>(), " time(s) in ",
                    accelerator.num_processes(), " process(es)");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_program("map_with_rank", [&] { return run(argc, argv); });
}
