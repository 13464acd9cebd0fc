#include "datasets/texts/tokenizer_key.hpp"

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

std::vector<std::filesystem::path> files_of_tokenizer(const std::filesystem::path& path) {
  auto files = tokenizer_files(path);
  const auto config = path / "config.json";
  if (std::filesystem::is_directory(path) && std::filesystem::exists(config)) files.push_back(config);
  return files;
}

}  // namespace lockstep
