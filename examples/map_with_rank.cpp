// Translates a data set on several devices at once: map(with_rank=True, num_proc=devices) of Python's
// datasets, with a model that each worker sets up once instead of per batch.

#include <torch/types.h>

#include <atomic>
#include <iostream>
#include <nlohmann/json.hpp>

#include "lockstep/core/options.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "lockstep/datasets/map.hpp"
#include "lockstep/models/bart.hpp"
#include "lockstep/train/accelerator.hpp"

namespace {

namespace fs = std::filesystem;
namespace models = lockstep::models;
using lockstep::MapBatch;
using lockstep::Worker;

struct Options {
  std::string data;
  std::string column = "text";
  std::string folder = "out/translated";
  int num_proc = 0;
};

/// Bytes as tokens, after the model's four special tokens.
constexpr std::int64_t kFirstByte = 4;
constexpr std::int64_t kLongest = 64;

/// A small new encoder-decoder, written once for all workers. A BART from Hugging Face would do as well, with
/// its tokenizer instead of the bytes: see trainers/batch_inference.
void write_model(const fs::path& folder) {
  torch::manual_seed(1);
  models::BartForConditionalGeneration model(models::BartConfig{.vocab_size = 256 + kFirstByte,
                                                                .max_position_embeddings = kLongest,
                                                                .d_model = 32,
                                                                .encoder_layers = 1,
                                                                .encoder_attention_heads = 4,
                                                                .encoder_ffn_dim = 64,
                                                                .decoder_layers = 1,
                                                                .decoder_attention_heads = 4,
                                                                .decoder_ffn_dim = 64,
                                                                .init_std = 0.5,
                                                                .decoder_start_token_id = kFirstByte});
  models::save_pretrained(model, folder);
}

models::BartForConditionalGeneration read_model(const fs::path& folder, const at::Device& device) {
  auto model = models::load_bart(folder);
  model->to(device);
  model->eval();
  return model;
}

/// One worker's model, on its device.
class Translator {
 public:
  Translator(const fs::path& folder, const Worker& worker)
      : device_(worker.device), model_(read_model(folder, device_)) {}

  std::vector<std::string> operator()(const MapBatch& batch, const std::string& column) {
    const torch::NoGradGuard no_grad;
    const auto texts = batch.column<std::string_view>(column);
    const auto& config = model_->config();
    at::Tensor ids = torch::full({batch.size(), kLongest}, config.pad_token_id, torch::kLong);
    for (std::int64_t row = 0; row < batch.size(); ++row) {
      for (std::int64_t i = 0; i < std::min<std::int64_t>(kLongest, std::ssize(texts[row])); ++i)
        ids[row][i] = kFirstByte + static_cast<unsigned char>(texts[row][static_cast<std::size_t>(i)]);
    }
    const at::Tensor mask = (ids != config.pad_token_id).to(torch::kLong);
    const at::Tensor out =
        models::generate(model_, ids.to(device_), mask.to(device_), {.max_new_tokens = 8}).cpu();
    std::vector<std::string> translations;
    for (const auto& row : out.unbind(0)) translations.push_back(text_of(row));
    return translations;
  }

 private:
  /// Printable text for any bytes.
  static std::string text_of(const at::Tensor& tokens) {
    std::string text;
    for (std::int64_t i = 1; i < tokens.numel(); ++i) {
      const auto token = tokens[i].item<std::int64_t>();
      if (token >= kFirstByte) text += static_cast<char>(' ' + (token - kFirstByte) % 94);
    }
    return text;
  }

  at::Device device_;
  models::BartForConditionalGeneration model_;
};

const auto& option_table() {
  static const auto table =
      lockstep::OptionTable<Options>("map_with_rank", "Translates a column of a data set on all workers.")
          .add("data", &Options::data, "Arrow, Parquet, CSV, JSON lines or text file.", lockstep::required())
          .add("column", &Options::column, "The column with the texts.")
          .add("folder", &Options::folder, "Folder for model, cache and result.")
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
        return Translator(model, worker);
      },
      [&](const MapBatch& batch, Translator& translator, const Worker&) -> lockstep::Columns {
        ++counts.batches;
        return {{"translation", lockstep::make_column(translator(batch, options.column))}};
      },
      {.name = "translate",
       .version = "1",
       .parameters = nlohmann::json{{"column", options.column}}.dump(),
       .input_files = {model},
       .batch_size = 12,
       .ranks = ranks,
       .num_proc = options.num_proc,
       .shard_rows = 12,
       .cache_folder = fs::path(options.folder) / "cache",
       .load_from_cache = false,
       .progress = false});
}

int run(int argc, char** argv) {
  const auto parsed = option_table().parse(argc, argv);
  if (parsed.help) return std::cout << option_table().help(), 0;
  const fs::path folder = parsed.options.folder;

  const lockstep::Accelerator accelerator;
  accelerator.on_main_process([&] {
    fs::create_directories(folder / "model");
    write_model(folder / "model");
  });
  Counts counts;
  const auto translated = translate(accelerator, parsed.options, folder / "model", counts);
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
