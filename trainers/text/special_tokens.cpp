#include "text/special_tokens.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/datasets/tokenize.hpp"

namespace texts {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kModelConfig = "config.json";
constexpr const char* kGenerationConfig = "generation_config.json";
constexpr const char* kTokenizerConfig = "tokenizer_config.json";

Json read_object(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  auto object = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) throw lockstep::DataError("'" + path.string() + "' is not a JSON object.");
  return object;
}

void write_object(const fs::path& path, const Json& object) {
  lockstep::write_atomically(path, object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

/// The settings of generate() in a config.json, for a generation_config.json beside it.
Json generation_of_config(const Json& config) {
  Json generation = {{"_from_model_config", true}};
  for (const char* field : {"bos_token_id",
                            "eos_token_id",
                            "pad_token_id",
                            "decoder_start_token_id",
                            "forced_bos_token_id",
                            "forced_eos_token_id",
                            "max_length",
                            "max_new_tokens",
                            "min_length",
                            "min_new_tokens",
                            "do_sample",
                            "temperature",
                            "top_k",
                            "top_p",
                            "min_p",
                            "num_beams",
                            "num_return_sequences",
                            "early_stopping",
                            "length_penalty",
                            "repetition_penalty",
                            "no_repeat_ngram_size",
                            "encoder_no_repeat_ngram_size",
                            "bad_words_ids",
                            "suppress_tokens",
                            "begin_suppress_tokens",
                            "renormalize_logits"}) {
    if (config.contains(field) && !config[field].is_null()) generation[field] = config[field];
  }
  return generation;
}

/// For people, whatever the bytes.
std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json field_of(const Json& object, const std::string& name) { return object.value(name, Json()); }

bool has_token(const Json& ids, std::int64_t token) {
  if (!ids.is_array()) return ids == token;
  return std::find(ids.begin(), ids.end(), Json(token)) != ids.end();
}

/// The token, and behind it the other ones.
Json with_first(std::int64_t token, const Json& ids) {
  Json list = Json::array({token});
  for (const auto& id : ids.is_array() ? ids : Json::array({ids})) {
    if (!id.is_null() && id != token) list.push_back(id);
  }
  return list;
}

/// The configurations of a model's folder.
struct Configurations {
  Json config, generation;

  explicit Configurations(const fs::path& folder) : config(read_object(folder / kModelConfig)) {
    const auto own = folder / kGenerationConfig;
    generation = fs::exists(own) ? read_object(own) : generation_of_config(config);
  }

  /// The rules of transformers, token by token. Returns what changed.
  std::string align(const SpecialTokens& tokens) {
    std::vector<std::string> changes;
    const auto set = [&](const std::string& name, std::optional<std::int64_t> token, bool several) {
      const Json before = field_of(config, name), generated = field_of(generation, name);
      if (!token || (has_token(before, *token) && has_token(generated, *token))) return;
      config[name] = several && before.is_array() ? with_first(*token, before) : Json(*token);
      generation[name] = several ? with_first(*token, generated) : Json(*token);
      changes.push_back(
          fmt::format("{} {} (was {}, in generation {})", name, *token, text_of(before), text_of(generated)));
    };
    set("eos_token_id", tokens.eos, /*several=*/true);
    set("bos_token_id", tokens.bos, false);
    set("pad_token_id", tokens.pad, false);
    return fmt::format("{}", fmt::join(changes, ", "));
  }
};

}  // namespace

lockstep::tokenizer::PretrainedOptions with_eos_token(const std::string& eos_token) {
  lockstep::tokenizer::PretrainedOptions options;
  if (!eos_token.empty()) options.special_tokens["eos_token"] = eos_token;
  return options;
}

void check_eos_token(const std::string& eos_token, const std::string& tokenizer, std::int64_t vocab_size) {
  if (eos_token.empty()) return;
  const auto id = lockstep::load_tokenizer(tokenizer).token_to_id(eos_token);
  if (!id)
    throw lockstep::UsageError(fmt::format(
        "--eos-token '{}' is no token of the tokenizer {}: name one that it has.", eos_token, tokenizer));
  if (*id >= vocab_size)
    throw lockstep::UsageError(fmt::format(
        "--eos-token '{}' is token {} of the tokenizer {}, but the model has embeddings of {} tokens: name "
        "one below.",
        eos_token, *id, tokenizer, vocab_size));
}

SpecialTokens special_tokens_of(const lockstep::Tokenizer& tokenizer, bool pads_with_eos) {
  SpecialTokens tokens{.bos = tokenizer.special_token_id("bos_token"),
                       .eos = tokenizer.special_token_id("eos_token"),
                       .pad = tokenizer.special_token_id("pad_token")};
  if (!tokens.pad && pads_with_eos) tokens.pad = tokens.eos;
  return tokens;
}

void save_special_tokens(const lockstep::Trainer& trainer, const SpecialTokens& tokens,
                         const std::string& adapted) {
  const auto& accelerator = trainer.accelerator();
  accelerator.on_main_process([&] {
    const fs::path folder = adapted.empty() ? trainer.args().output_dir : adapted;
    Configurations files(folder);
    if (!adapted.empty()) {
      const auto ends = field_of(files.generation, "eos_token_id");
      if (tokens.eos && !has_token(ends, *tokens.eos))
        accelerator.print("an adapter has no generation_config.json, and that of ", adapted,
                          " does not end texts with the tokenizer's eos_token, ", *tokens.eos,
                          ": add it to the eos_token_id there, which is ", text_of(ends));
      return;
    }
    const auto changes = files.align(tokens);
    if (changes.empty()) return;
    write_object(folder / kGenerationConfig, files.generation);
    write_object(folder / kModelConfig, files.config);
    accelerator.print("the model gets the tokenizer's special tokens: ", changes);
  });
}

void save_eos_token(const lockstep::Trainer& trainer, const std::string& eos_token) {
  if (eos_token.empty()) return;
  trainer.accelerator().on_main_process([&] {
    for (const char* name : {kTokenizerConfig, "special_tokens_map.json"}) {
      const auto path = fs::path(trainer.args().output_dir) / name;
      const bool is_there = fs::exists(path);
      if (!is_there && name != std::string(kTokenizerConfig)) continue;
      auto settings = is_there ? read_object(path) : Json::object();
      settings["eos_token"] = eos_token;
      write_object(path, settings);
    }
  });
}

}  // namespace texts
