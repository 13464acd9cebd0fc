// A decoder of one's own on the bytes of a file: three of four layers see 32 tokens back, the fourth sees all
// and has no positions; queries and keys have norms, and logits a cap.
#include <lockstep/lockstep.hpp>

#include <fstream>
#include <iostream>
#include <iterator>

#include "lockstep/models/auto_model.hpp"
#include "lockstep/models/decoder.hpp"
#include "lockstep/models/trainer_model.hpp"

namespace models = lockstep::models;
constexpr std::int64_t kBlock = 128;

struct Options : lockstep::TrainingArguments {
  std::string train_file;
};

/// Blocks of the file's bytes, which are their own token ids.
struct Bytes final : lockstep::Dataset {
  explicit Bytes(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::vector<std::uint8_t> bytes(std::istreambuf_iterator<char>(file), {});
    ids = torch::tensor(at::ArrayRef(bytes), torch::kLong);
    if (size() == 0) throw lockstep::DataError("'" + path + "' cannot be read, or has less than 128 bytes");
  }
  std::int64_t size() const override { return ids.numel() / kBlock; }
  lockstep::Example get(std::int64_t index, const lockstep::SampleContext&) const override {
    const at::Tensor block = ids.narrow(0, index * kBlock, kBlock);
    return {{"input_ids", block}, {"labels", block}};
  }
  at::Tensor ids;
};

int train(int argc, char** argv) {
  lockstep::OptionTable<Options> table("own_decoder", "Trains a decoder of its own form on bytes.");
  table.include(lockstep::training_argument_table()).add("train-file", &Options::train_file, "Any file.");
  const auto parsed = table.parse(argc, argv);
  if (parsed.help) return std::cout << table.help(), 0;
  auto config =
      models::DecoderConfig::of({.model_type = "llama", .vocab_size = 256, .max_position_embeddings = kBlock},
                                {.hidden_size = 64, .num_hidden_layers = 4, .num_attention_heads = 4});
  config.qk_norm = models::QkNorm::head;
  config.logits_softcap = 30;
  config.layers = {{.window = 32}, {.window = 32}, {.window = 32}, {.rope = std::nullopt}};
  torch::manual_seed(parsed.options.seed);
  const std::shared_ptr<models::CausalLMImpl> decoder =
      std::make_shared<models::DecoderForCausalLMImpl>(config);
  lockstep::Trainer trainer(parsed.options,
                            {.model = models::trainer_model(decoder),
                             .train_dataset = std::make_shared<Bytes>(parsed.options.train_file)});
  return trainer.train().preempted ? lockstep::kPreemptedExitCode : 0;
}

int main(int argc, char** argv) {
  return lockstep::run_program("own_decoder", [&] { return train(argc, argv); });
}
