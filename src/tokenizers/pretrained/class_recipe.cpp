#include "tokenizers/pretrained/class_recipe.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "tokenizers/pretrained/byte_recipes.hpp"
#include "tokenizers/pretrained/piece_recipes.hpp"

namespace lockstep::tokenizer {
namespace {

using RecipeMaker = ClassRecipe (*)(ClassFields& fields, const recipe::FileParts& file);

constexpr std::pair<const char*, RecipeMaker> kRecipes[] = {{"AlbertTokenizer", recipe::albert},
                                                            {"BarthezTokenizer", recipe::barthez},
                                                            {"BertTokenizer", recipe::bert},
                                                            {"BigBirdTokenizer", recipe::big_bird},
                                                            {"BlenderbotTokenizer", recipe::blenderbot},
                                                            {"CamembertTokenizer", recipe::camembert},
                                                            {"CodeGenTokenizer", recipe::gpt2},
                                                            {"CodeLlamaTokenizer", recipe::code_llama},
                                                            {"CohereTokenizer", recipe::cohere},
                                                            {"DebertaTokenizer", recipe::deberta},
                                                            {"DebertaV2Tokenizer", recipe::deberta_v2},
                                                            {"DistilBertTokenizer", recipe::distil_bert},
                                                            {"FunnelTokenizer", recipe::funnel},
                                                            {"GPT2Tokenizer", recipe::gpt2},
                                                            {"GPTNeoXTokenizer", recipe::gpt_neox},
                                                            {"GemmaTokenizer", recipe::gemma},
                                                            {"HerbertTokenizer", recipe::herbert},
                                                            {"LlamaTokenizer", recipe::llama},
                                                            {"MBart50Tokenizer", recipe::mbart50},
                                                            {"MBartTokenizer", recipe::mbart},
                                                            {"MPNetTokenizer", recipe::mpnet},
                                                            {"NllbTokenizer", recipe::nllb},
                                                            {"PegasusTokenizer", recipe::pegasus},
                                                            {"Qwen2Tokenizer", recipe::qwen2},
                                                            {"Qwen3_5Tokenizer", recipe::qwen3_5},
                                                            {"RemBertTokenizer", recipe::rembert},
                                                            {"RobertaTokenizer", recipe::roberta},
                                                            {"T5Tokenizer", recipe::t5},
                                                            {"XLMRobertaTokenizer", recipe::xlm_roberta},
                                                            {"XLNetTokenizer", recipe::xlnet}};

/// SentencePiece's table in a file's normalizer, or null.
nlohmann::json charsmap_of(const nlohmann::json& normalizer) {
  if (!normalizer.is_object()) return nullptr;
  const bool is_list =
      normalizer.value("type", nlohmann::json()) == "Sequence" && normalizer.contains("normalizers");
  const nlohmann::json parts = is_list ? normalizer["normalizers"] : nlohmann::json::array({normalizer});
  for (const auto& one : parts) {
    if (one.is_object() && one.value("type", nlohmann::json()) == "Precompiled" &&
        one.contains("precompiled_charsmap")) {
      return one["precompiled_charsmap"];
    }
  }
  return nullptr;
}

}  // namespace

std::optional<ClassRecipe> recipe_of(const std::string& class_name, ClassFields& fields,
                                     const nlohmann::json& file_normalizer, const nlohmann::json& model) {
  for (const auto& [name, make] : kRecipes) {
    if (class_name == name) return make(fields, {.charsmap = charsmap_of(file_normalizer), .model = model});
  }
  return std::nullopt;
}

std::string recipe_names() {
  std::vector<std::string> names;
  for (const auto& recipe : kRecipes) names.emplace_back(recipe.first);
  return fmt::format("{}", fmt::join(names, ", "));
}

nlohmann::json template_processing(const std::vector<TemplatePiece>& single,
                                   const std::vector<TemplatePiece>& pair, const IdOf& id) {
  nlohmann::json document = {{"type", "TemplateProcessing"}, {"special_tokens", nlohmann::json::object()}};
  const auto write = [&](const std::vector<TemplatePiece>& pieces) {
    auto list = nlohmann::json::array();
    for (const auto& [text, type] : pieces) {
      const bool is_text = text == "$A" || text == "$B";
      list.push_back({{is_text ? "Sequence" : "SpecialToken",
                       {{"id", is_text ? text.substr(1) : text}, {"type_id", type}}}});
      if (!is_text)
        document["special_tokens"][text] = {{"id", text}, {"ids", {id(text)}}, {"tokens", {text}}};
    }
    return list;
  };
  auto first = write(single);
  document["pair"] = write(pair);
  document["single"] = std::move(first);
  return document;
}

nlohmann::json bos_and_eos(const std::string& bos, const std::string& eos, const IdOf& id) {
  std::vector<TemplatePiece> single;
  std::vector<TemplatePiece> second;
  if (!bos.empty()) single.push_back({bos, 0}), second.push_back({bos, 1});
  single.push_back({"$A", 0});
  second.push_back({"$B", 1});
  if (!eos.empty()) single.push_back({eos, 0}), second.push_back({eos, 1});
  auto pair = single;
  pair.insert(pair.end(), second.begin(), second.end());
  return template_processing(single, pair, id);
}

}  // namespace lockstep::tokenizer
