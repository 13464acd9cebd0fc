#include <fmt/format.h>

#include <algorithm>

#include "core/json.hpp"
#include "core/json_text.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/models/pretrained.hpp"
#include "models/generation_settings.hpp"

namespace lockstep::models {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// A setting of transformers' generate() that is not implemented: its name, and the values with which it
/// changes nothing, besides null.
struct OtherSetting {
  const char* field;
  std::vector<Json> neutral = {};
};

/// All that transformers 4 and 5 know. Left out is what changes no text: caches, compilation, outputs.
const std::vector<OtherSetting>& other_settings() {
  static const std::vector<OtherSetting> settings = {
      {"assistant_confidence_threshold", {0.4}},
      {"assistant_early_exit"},
      {"assistant_ensemble_weight"},
      {"assistant_lookbehind", {10}},
      {"constraints"},
      {"diversity_penalty", {0}},
      {"dola_layers"},
      {"encoder_repetition_penalty", {1}},
      {"epsilon_cutoff", {0}},
      {"eta_cutoff", {0}},
      {"exponential_decay_length_penalty"},
      {"force_words_ids"},
      {"forced_decoder_ids"},
      {"guidance_scale", {1}},
      {"is_assistant", {false}},
      {"low_memory", {false}},
      {"max_matching_ngram_size", {2}},
      {"max_time"},
      {"num_assistant_tokens", {20, 5}},
      {"num_assistant_tokens_schedule", {"constant", "heuristic"}},
      {"num_beam_groups", {1}},
      {"penalty_alpha", {0}},
      {"prompt_lookup_num_tokens"},
      {"remove_invalid_values", {false}},
      {"sequence_bias"},
      {"speculation_type"},
      {"stop_strings"},
      {"target_lookbehind", {10}},
      {"token_healing", {false}},
      {"top_h"},
      {"typical_p", {1}},
      {"use_mtp", {false}},
      {"watermarking_config"},
  };
  return settings;
}

/// Reads fields of one JSON object by their C++ types.
class FieldReader {
 public:
  FieldReader(const Json& fields, const std::string& file) : fields_(&fields), file_(&file) {}

  void operator()(const char* field, auto& value, auto& /*same*/) const {
    const auto found = fields_->find(field);
    if (found == fields_->end() || found->is_null()) return;
    read(field, *found, value);
  }

  [[noreturn]] void fail(const char* field, const std::string& expected) const {
    throw DataError(fmt::format("{}: the field '{}' is {}, expected {}", *file_, field,
                                json_text(fields_->at(field)), expected));
  }

 private:
  void read(const char* field, const Json& json, std::optional<std::int64_t>& value) const {
    const bool is_token = std::string(field).ends_with("_token_id");
    if (!is_whole(json)) fail(field, is_token ? "the number of a token" : "an integer");
    value = json.get<std::int64_t>();
    // How some files say that there is no such token.
    if (is_token && *value == -1) value.reset();
  }
  void read(const char* field, const Json& json, std::optional<double>& value) const {
    if (!json.is_number()) fail(field, "a number");
    value = json.get<double>();
  }
  void read(const char* field, const Json& json, std::optional<bool>& value) const {
    if (!json.is_boolean()) fail(field, "true or false");
    value = json.get<bool>();
  }
  void read(const char* field, const Json& json, std::optional<EarlyStopping>& value) const {
    if (json.is_boolean()) {
      value = json.get<bool>();
    } else if (json == "never") {
      value = EarlyStopping::never();
    } else {
      fail(field, "true, false or \"never\"");
    }
  }
  void read(const char* field, const Json& json, TokenIds& value) const {
    for (const auto& id : json.is_array() ? json : Json::array({json})) {
      const bool is_id = is_whole(id) && id >= 0;
      if (!is_id) fail(field, "a token's number, or a list of such");
      value.push_back(id.get<std::int64_t>());
    }
  }
  void read(const char* field, const Json& json, std::optional<std::vector<std::int64_t>>& value) const {
    if (!are_whole(json)) fail(field, "a list of tokens");
    value = json.get<std::vector<std::int64_t>>();
  }
  void read(const char* field, const Json& json,
            std::optional<std::vector<std::vector<std::int64_t>>>& value) const {
    if (!json.is_array() || !std::all_of(json.begin(), json.end(), are_whole))
      fail(field, "a list of lists of tokens");
    value = json.get<std::vector<std::vector<std::int64_t>>>();
  }

  static bool is_whole(const Json& json) {
    constexpr std::int64_t kMost = std::int64_t{1} << 31;
    return json.is_number_integer() && json > -kMost && json < kMost;
  }
  static bool are_whole(const Json& json) {
    return json.is_array() && std::all_of(json.begin(), json.end(), is_whole);
  }

  const Json* fields_;
  const std::string* file_;
};

/// A folder's settings, and the file that has them.
struct FolderGeneration {
  Json fields, config;
  std::string file;
};

FolderGeneration read_folder(const fs::path& folder) {
  const fs::path own = folder / "generation_config.json", config = folder / kConfigFileName;
  FolderGeneration found{nullptr, read_json_document(config), (fs::exists(own) ? own : config).string()};
  found.fields = fs::exists(own) ? read_json_document(own) : found.config;
  for (const auto* json : {&found.fields, &found.config}) {
    if (json->is_object()) continue;
    throw DataError((json == &found.fields ? found.file : config.string()) + ": expected a JSON object");
  }
  return found;
}

GenerationSettings settings_in(const fs::path& folder, const GenerationConfig& options) {
  const auto found = read_folder(folder);
  GenerationSettings settings(options, read_generation(found.fields, found.file), found.file);
  if (const auto vocabulary = target_vocabulary(found.config)) settings.check_vocabulary(vocabulary);
  return settings;
}

}  // namespace

GenerationConfig read_generation(const Json& fields, const std::string& file) {
  GenerationConfig config;
  const FieldReader reader(fields, file);
  visit_generation_fields(config, config, reader);
  for (const auto& [field, neutral] : other_settings()) {
    const auto found = fields.find(field);
    if (found == fields.end() || found->is_null()) continue;
    if (std::find(neutral.begin(), neutral.end(), *found) != neutral.end()) continue;
    reader.fail(field, (neutral.empty() ? "null" : json_text(neutral.front())) +
                           ": generate() does not implement this setting");
  }
  return config;
}

std::int64_t target_vocabulary(const Json& config) {
  const bool has_own = config.contains("share_encoder_decoder_embeddings") &&
                       config["share_encoder_decoder_embeddings"] == false;
  const auto found = config.find(has_own ? "decoder_vocab_size" : "vocab_size");
  return found != config.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

GenerationConfig GenerationConfig::from_pretrained(const fs::path& folder) {
  return settings_in(folder, {}).config();
}

GenerationConfig generation_settings(const fs::path& folder, const GenerationConfig& options) {
  return settings_in(folder, options).config();
}

}  // namespace lockstep::models
