#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "lockstep/core/error.hpp"
#include "tokenizers/document.hpp"
#include "tokenizers/pretrained/class_arguments.hpp"
#include "tokenizers/pretrained/class_name.hpp"
#include "tokenizers/pretrained/class_recipe.hpp"
#include "tokenizers/pretrained/folder_templates.hpp"
#include "tokenizers/pretrained/given_token.hpp"
#include "tokenizers/pretrained/model_folder.hpp"
#include "tokenizers/tokenizer_parts.hpp"

namespace lockstep {
namespace tokenizer {
namespace {

using Json = nlohmann::json;

/// Makes the tokenizer of a folder.
class FolderTokenizer {
 public:
  FolderTokenizer(ModelFolder& folder, const PretrainedOptions& options)
      : folder_(folder),
        arguments_(folder, options),
        fields_(arguments_.fields, arguments_.by_content, folder.file("tokenizer_config.json").string()),
        class_name_(class_of_folder()) {
    read_recipe();
    read_settings();
    begin();
    add_tokens();
    arguments_.check_ids(*added_);
    set_languages(options);
    set_post_processor();
    finish();
  }

  std::shared_ptr<const Pipeline> pipeline() const { return pipeline_; }
  std::shared_ptr<const PostProcessor> target() const { return target_; }
  PretrainedSettings settings;

 private:
  /// Without any word of the class, vocabulary files are those of BERT or GPT-2.
  std::string class_of_folder() const {
    const auto name = class_name_of(folder_);
    if (name != kGenericClass || !folder_.tokenizer.is_null()) return name;
    if (folder_.has("vocab.txt")) return "BertTokenizer";
    return folder_.has("vocab.json") && folder_.has("merges.txt") ? "GPT2Tokenizer" : name;
  }

  void read_recipe() {
    if (class_name_ != kGenericClass) {
      recipe_ =
          recipe_of(class_name_, fields_,
                    folder_.tokenizer.is_null() ? Json() : folder_.tokenizer.value("normalizer", Json()),
                    model_of_file());
      if (!recipe_) refuse_class();
    }
  }

  const Json& model_of_file() const {
    static const Json none;
    return folder_.tokenizer.is_object() && folder_.tokenizer.contains("model") ? folder_.tokenizer["model"]
                                                                                : none;
  }

  [[noreturn]] void refuse_class() const {
    const auto other = folder_.sentence_piece();
    const auto hint =
        !folder_.tokenizer.is_null() ? std::string("Tokenizer::from_file() reads its tokenizer.json as it is")
        : other.empty()
            ? std::string("it has no tokenizer.json")
            : fmt::format("it has no tokenizer.json, and transformers has no conversion of its '{}'", other);
    throw DataError(fmt::format(
        "'{}': the tokenizer class {} is not supported, {} ({} are, and every tokenizer.json of {} or "
        "PreTrainedTokenizerFast).",
        folder_.path.string(), class_name_, hint, recipe_names(), kGenericClass));
  }

  Side side_of(const char* field, const char* part, Side otherwise) const {
    const auto given = fields_.node().find(field);
    if (given) {
      if (given->text() == "left") return Side::left;
      if (given->text() == "right") return Side::right;
      given->fail(fmt::format("'{}' is neither left nor right", given->text()));
    }
    if (folder_.tokenizer.is_null() || !folder_.tokenizer.contains(part) || folder_.tokenizer[part].is_null())
      return otherwise;
    const Node file(folder_.tokenizer, folder_.file("tokenizer.json").string());
    return file[part].text("direction", "Right") == "Left" ? Side::left : Side::right;
  }

  void read_settings() {
    settings.tokenizer_class = class_name_;
    settings.padding_side =
        side_of("padding_side", "padding", recipe_ && recipe_->pads_left ? Side::left : Side::right);
    settings.truncation_side = side_of("truncation_side", "truncation", Side::right);
    auto longest = fields_.node().find("model_max_length");
    if (!longest) longest = fields_.node().find("max_len");
    // Files write 1e30 for "no limit".
    if (longest && longest->real() < 0) longest->fail("it is negative");
    if (longest && longest->real() <= std::numeric_limits<std::int32_t>::max()) {
      settings.model_max_length = static_cast<std::size_t>(longest->real());
    }
    if (recipe_) settings.model_input_names = recipe_->inputs;
    if (const auto names = fields_.node().find("model_input_names")) {
      settings.model_input_names.clear();
      for (const auto& name : names->elements()) settings.model_input_names.push_back(name.text());
    }
    settings.clean_up_tokenization_spaces = fields_.flag("clean_up_tokenization_spaces", false);
  }

  void begin() {
    if (!recipe_) {
      if (folder_.tokenizer.is_null()) fail_without_file();
      document_ = std::move(folder_.tokenizer);
      file_ = folder_.file("tokenizer.json").string();
      pipeline_ = begin_pipeline(Node(document_, file_));
      file_post_processor_ = document_.value("post_processor", Json());
      return;
    }
    document_["normalizer"] = recipe_->normalizer;
    document_["pre_tokenizer"] = recipe_->pre_tokenizer;
    document_["decoder"] = recipe_->decoder;
    auto model = folder_.tokenizer.is_null() ? model_of_vocabulary() : nullptr;
    if (!model) take_model_of_file();
    pipeline_ = begin_pipeline(Node(document_, file_), std::move(model));
  }

  void take_model_of_file() {
    file_ = folder_.file("tokenizer.json").string();
    const Node document(folder_.tokenizer, file_);
    const auto type = model_type(document["model"]);
    if (type != recipe_->model) {
      throw DataError(fmt::format(
          "'{}': tokenizer_class is {}, whose model is {}, but the model in tokenizer.json is {}: the files "
          "contradict each other.",
          folder_.file("tokenizer_config.json").string(), class_name_, recipe_->model, type));
    }
    Json& given = folder_.tokenizer["model"];
    Json model = recipe_->model_fields;
    model["type"] = type;
    for (const char* part : {"vocab", "merges"}) {
      if (given.contains(part)) model[part] = std::move(given[part]);
    }
    document_["model"] = std::move(model);
    file_post_processor_ = folder_.tokenizer.value("post_processor", Json());
  }

  /// The model of a vocab.txt, or of a vocab.json with a merges.txt.
  std::unique_ptr<const Model> model_of_vocabulary() {
    const bool words = recipe_->model == "WordPiece";
    const bool there =
        words ? folder_.has("vocab.txt") : folder_.has("vocab.json") && folder_.has("merges.txt");
    if (recipe_->model == "Unigram" || !there) fail_without_file();
    file_ = folder_.file(words ? "vocab.txt" : "vocab.json").string();
    if (words) {
      return std::make_unique<WordPiece>(read_vocabulary_lines(read_text_file(file_), file_),
                                         WordPiece::Settings{.unknown_token = fields_.text("unk_token")},
                                         file_);
    }
    document_["model"] = recipe_->model_fields;
    document_["model"]["type"] = "BPE";
    document_["model"]["vocab"] = parse_json(read_text_file(file_), file_);
    const auto merges_file = folder_.file("merges.txt");
    auto& merges = document_["model"]["merges"] = Json::array();
    for (auto& [left, right] : read_merge_lines(read_text_file(merges_file), merges_file.string())) {
      merges.push_back(Json::array({std::move(left), std::move(right)}));
    }
    return make_model(Node(document_, file_)["model"],
                      PreTokenizer(Node(document_, file_)["pre_tokenizer"]).is_byte_level());
  }

  [[noreturn]] void fail_without_file() const {
    if (const auto other = folder_.sentence_piece(); !other.empty()) fail_sentence_piece(folder_, other);
    const bool words = recipe_ && recipe_->model == "WordPiece";
    const bool pairs = recipe_ && recipe_->model == "BPE";
    throw DataError(fmt::format("'{}' is not the folder of a tokenizer: it has no tokenizer.json{}.",
                                folder_.path.string(),
                                words   ? " and no vocab.txt"
                                : pairs ? ", and no vocab.json with merges.txt"
                                        : ""));
  }

  /// As the class's constructor does: the added tokens of the files in the order of their ids, then the
  /// special tokens that are not among them.
  void add_tokens() {
    added_.emplace(pipeline_->model->vocabulary());
    // Those that the class has no default for, as far as the files give them.
    for (const char* name : kNamedTokens) {
      if (fields_.find(name) == nullptr) fields_.take(name);
    }
    if (!recipe_) {
      take_padding_token();
      if (const auto tokens = Node(document_, file_).find("added_tokens")) added_->take(*tokens);
    }
    for (const auto& name : arguments_.own_tokens) fields_.take(name);
    for (const auto& [name, token] : fields_.tokens()) settings.special_tokens[name] = token.content;
    std::vector<GivenToken> tokens;
    std::set<std::string> contents;
    const auto put = [&](const GivenToken& token) {
      if (contents.insert(token.content).second) tokens.push_back(token);
    };
    for (const auto& [id, token] : arguments_.by_id) put(token);
    const auto put_new = [&](const GivenToken& token) {
      if (!added_->contains(token.content)) put(token);
    };
    each_named([&](const GivenToken& token) { put_new(token); });
    const auto extra = extra_tokens();
    for (const auto& token : extra) put_new(token);
    for (auto& token : tokens) added_->add(as_added(token));
    if (!recipe_ || !recipe_->adds_again) return;
    each_named([&](const GivenToken& token) { added_->add(as_special(token)); });
    for (const auto& token : extra) added_->add(as_special(token));
  }

  /// A tokenizer.json that pads says with what.
  void take_padding_token() {
    if (fields_.has("pad_token") || !document_.contains("padding") || document_["padding"].is_null()) return;
    const auto token = Node(document_, file_)["padding"].text("pad_token", "[PAD]");
    fields_.token("pad_token", {.content = token});
  }

  template <class Use>
  void each_named(const Use& use) const {
    for (const char* name : kNamedTokens) {
      if (const auto* token = fields_.find(name)) use(*token);
    }
    for (const auto& [name, token] : fields_.tokens()) {
      if (!is_named_token(name)) use(token);
    }
  }

  std::vector<GivenToken> extra_tokens() const {
    const auto node = fields_.node().find("extra_special_tokens");
    const bool given = node || (fields_.has("extra_special_tokens") && !(recipe_ && recipe_->extra_if_null));
    if (!given) {
      if (recipe_ && !recipe_->extra_tokens.empty()) return recipe_->extra_tokens;
      std::vector<GivenToken> tokens;
      if (const auto more = fields_.node().find("additional_special_tokens"))
        for (const auto& token : more->elements()) tokens.push_back(read_given_token(token));
      return tokens;
    }
    std::vector<GivenToken> tokens;
    if (!node) return tokens;
    for (const auto& token : node->elements()) tokens.push_back(read_given_token(token));
    return tokens;
  }

  bool is_named_content(const std::string& content) const {
    bool found = false;
    each_named([&](const GivenToken& token) { found = found || token.content == content; });
    return found;
  }

  GivenToken as_added(GivenToken token) const {
    if (token.is_text) return as_special(std::move(token));
    if (is_named_content(token.content)) token.special = true;
    return token;
  }

  static GivenToken as_special(GivenToken token) {
    token.special = true;
    if (token.is_text) token.normalized = false;
    return token;
  }

  std::int64_t id_of(const std::string& token) const {
    if (const auto id = added_->id(token); id && !token.empty()) return *id;
    fields_.node().fail(
        fmt::format("the tokenizer has no token '{}', which {} puts around texts", token, class_name_));
  }

  void set_languages(const PretrainedOptions& options) {
    if (!recipe_ || recipe_->default_language.empty()) {
      if (!options.src_lang && !options.tgt_lang) return;
      throw UsageError(fmt::format("src_lang and tgt_lang: the tokenizer class {} of '{}' has no languages.",
                                   class_name_, folder_.path.string()));
    }
    settings.src_lang = fields_.node().text("src_lang", recipe_->default_language);
    settings.tgt_lang = fields_.node().text("tgt_lang", settings.src_lang);
    settings.names_both_languages = fields_.node().find("src_lang") && fields_.node().find("tgt_lang");
    check_language("src_lang", settings.src_lang);
    check_language("tgt_lang", settings.tgt_lang);
  }

  void check_language(const char* field, const std::string& language) const {
    const auto& extra = recipe_->extra_tokens;
    const bool is_one =
        added_->contains(language) ||
        std::any_of(extra.begin(), extra.end(), [&](const auto& token) { return token.content == language; });
    if (is_one && added_->id(language)) return;
    fields_.node().fail(fmt::format("{}: the tokenizer has no language '{}'; it has {}", field,
                                    language.substr(0, 100), languages_like(language)));
  }

  /// A few of the languages, first those that begin most like this one, and how many there are.
  std::string languages_like(const std::string& language) const {
    constexpr std::size_t kShown = 6;
    std::vector<std::string> all;
    for (const auto& token : recipe_->extra_tokens) {
      if (added_->id(token.content)) all.push_back(token.content);
    }
    const auto common = [&](const std::string& other) {
      const auto end = std::min(other.size(), language.size());
      return std::mismatch(other.begin(), other.begin() + static_cast<std::ptrdiff_t>(end), language.begin())
                 .first -
             other.begin();
    };
    std::stable_sort(all.begin(), all.end(),
                     [&](const auto& a, const auto& b) { return common(a) > common(b); });
    const auto count = all.size();
    if (count > kShown) all.resize(kShown);
    return fmt::format("{}{}", fmt::join(all, ", "),
                       count > kShown ? fmt::format(" and {} more", count - kShown) : "");
  }

  void set_post_processor() {
    const IdOf id = [this](const std::string& token) { return id_of(token); };
    const bool is_explicit =
        fields_.has("add_bos_token") || fields_.has("add_eos_token") || (recipe_ && recipe_->add_bos);
    Json post = file_post_processor_;
    if (is_explicit || post.is_null() || (recipe_ && recipe_->sets_bos_and_eos)) {
      const bool bos = fields_.flag("add_bos_token", recipe_ && recipe_->add_bos);
      const bool eos = fields_.flag("add_eos_token", false);
      post = bos_and_eos(bos ? fields_.text("bos_token") : "", eos ? fields_.text("eos_token") : "", id);
    }
    // A class that adds its tokens again also sets bos and eos again, unless the file has a post-processor.
    const bool again = recipe_ && recipe_->adds_again && (is_explicit || file_post_processor_.is_null());
    const bool own = recipe_ && recipe_->post_processor && !again &&
                     !(recipe_->file_post_processor_first && !file_post_processor_.is_null());
    if (own) post = recipe_->post_processor(id, settings.src_lang);
    document_["post_processor"] = std::move(post);
    if (settings.tgt_lang.empty()) return;
    const Json target = recipe_->post_processor(id, settings.tgt_lang);
    target_ = std::make_shared<const PostProcessor>(Node(target, file_));
  }

  void finish() {
    document_["added_tokens"] = added_->document();
    finish_pipeline(*pipeline_, Node(document_, file_));
    if (fields_.flag("split_special_tokens", false)) pipeline_->added.split_special_tokens();
  }

  ModelFolder& folder_;
  ClassArguments arguments_;
  ClassFields fields_;
  std::string class_name_;
  std::optional<ClassRecipe> recipe_;
  Json document_ = Json::object();
  /// The file that errors name for the document.
  std::string file_;
  Json file_post_processor_;
  std::shared_ptr<Pipeline> pipeline_;
  std::optional<AddedList> added_;
  std::shared_ptr<const PostProcessor> target_;
};

}  // namespace
}  // namespace tokenizer

Tokenizer Tokenizer::from_pretrained(const std::filesystem::path& path,
                                     const tokenizer::PretrainedOptions& options) {
  if (!std::filesystem::is_directory(path)) {
    if (options != tokenizer::PretrainedOptions()) {
      throw UsageError(fmt::format(
          "'{}' is not a model's folder: options of from_pretrained() are for folders.", path.string()));
    }
    const auto file = path.extension() == ".txt" ? from_vocab(path) : from_file(path);
    return file.with_truncation(std::nullopt).with_padding(std::nullopt);
  }
  auto folder = tokenizer::read_model_folder(path);
  tokenizer::FolderTokenizer made(folder, options);
  made.settings.chat_templates = tokenizer::chat_templates_of(folder);
  return Tokenizer(std::make_shared<const Parts>(
      Parts{.pipeline = made.pipeline(), .target = made.target(), .settings = std::move(made.settings)}));
}

}  // namespace lockstep
