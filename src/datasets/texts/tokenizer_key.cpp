#include "datasets/texts/tokenizer_key.hpp"

#include <utility>

#include "core/json_text.hpp"

namespace lockstep {

nlohmann::json key_of_tokenizer(const tokenizer::PretrainedOptions& options) {
  return {{"src_lang", json_or_null(options.src_lang)},
          {"tgt_lang", json_or_null(options.tgt_lang)},
          {"add_bos_token", json_or_null(options.add_bos_token)},
          {"add_eos_token", json_or_null(options.add_eos_token)},
          {"add_prefix_space", json_or_null(options.add_prefix_space)},
          {"do_lower_case", json_or_null(options.do_lower_case)},
          {"special_tokens", options.special_tokens}};
}

void set_text_map(MapOptions& options, const TextMap& map, std::vector<std::string> removed) {
  auto parameters = map.parameters;
  parameters.update(key_of_tokenizer(map.pretrained));
  options.name = map.name;
  options.version = LOCKSTEP_TEXTS_VERSION;
  options.parameters = json_text(parameters);
  options.input_files = files_of_tokenizer(map.tokenizer);
  options.remove_columns = std::move(removed);
}

std::vector<std::filesystem::path> files_of_tokenizer(const std::filesystem::path& path) {
  auto files = tokenizer_files(path);
  const auto config = path / "config.json";
  if (std::filesystem::is_directory(path) && std::filesystem::exists(config)) files.push_back(config);
  return files;
}

}  // namespace lockstep
