#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/models/auto_model.hpp"
#include "lockstep/models/bart.hpp"
#include "lockstep/models/gpt2.hpp"
#include "models/logits_processors.hpp"
#include "support/temporary_folder.hpp"
#include "unit/models/golden_models.hpp"

namespace lockstep::models {
namespace {

// Comparison with golden/generation.jsonl, which make_generation.py writes in Python.

using Json = nlohmann::ordered_json;
using Tokens = std::vector<std::int64_t>;

constexpr std::int64_t kPad = 1;

/// The lines that have this field, and not the other.
std::vector<Json> lines_with(const std::string& field, const std::string& without = "") {
  std::vector<Json> lines;
  std::ifstream file(LOCKSTEP_GOLDEN_GENERATION);
  for (std::string text; std::getline(file, text);) {
    auto line = Json::parse(text);
    if (line.contains(field) && !line.contains(without)) lines.push_back(std::move(line));
  }
  EXPECT_GT(lines.size(), 6U);
  return lines;
}

/// A folder of one of the two models of make_generation.py.
class ModelFolder {
 public:
  explicit ModelFolder(const std::string& name) : is_gpt2_(name == "gpt2") {
    if (is_gpt2_) {
      Gpt2LMHeadModel model(Gpt2Config{.vocab_size = 50,
                                       .n_positions = 32,
                                       .n_embd = 24,
                                       .n_layer = 2,
                                       .n_head = 3,
                                       .bos_token_id = 49,
                                       .eos_token_id = 49});
      fill(*model, 3);
      save_pretrained(model, folder_.path());
      return;
    }
    BartConfig config{.vocab_size = 50, .max_position_embeddings = 32, .d_model = 24, .encoder_layers = 2};
    config.encoder_attention_heads = config.decoder_attention_heads = 3;
    config.encoder_ffn_dim = config.decoder_ffn_dim = 40;
    config.decoder_layers = 2;
    config.scale_embedding = true;
    BartForConditionalGeneration model(config);
    fill(*model);
    const at::NoGradGuard no_grad;
    model->named_parameters()["model.decoder.embed_positions.weight"].mul_(20);
    save_pretrained(model, folder_.path());
  }

  std::filesystem::path path() const { return folder_.path(); }
  void write(const char* name, const Json& content) const {
    testing::write_bytes(folder_.path() / name, content.dump());
  }

  /// Loads the model with these settings in its generation_config.json; returns its function from prompts to
  /// tokens, of which the first `skipped` belong to the prompt.
  struct Loaded {
    std::function<at::Tensor(const std::vector<Tokens>&, const GenerationConfig&)> generate;
    std::function<std::int64_t(const std::vector<Tokens>&)> skipped;
  };
  Loaded load() const {
    if (is_gpt2_) {
      const auto model = AutoModelForCausalLM::from_pretrained(path());
      model.ptr()->eval();
      return {[model](const auto& prompts, const auto& options) {
                const auto [tokens, mask] = padded_rows(prompts, /*in_front=*/true);
                return models::generate(model, tokens, mask, options);
              },
              [](const auto& prompts) { return longest(prompts); }};
    }
    const auto model = AutoModelForSeq2SeqLM::from_pretrained(path());
    model.ptr()->eval();
    return {[model](const auto& sources, const auto& options) {
              const auto [tokens, mask] = padded_rows(sources, /*in_front=*/false);
              return models::generate(model, tokens, mask, options);
            },
            [](const auto&) { return std::int64_t{1}; }};
  }

 private:
  static std::int64_t longest(const std::vector<Tokens>& rows) {
    std::int64_t most = 0;
    for (const auto& row : rows) most = std::max(most, std::ssize(row));
    return most;
  }

  static std::pair<at::Tensor, at::Tensor> padded_rows(const std::vector<Tokens>& rows, bool in_front) {
    const std::int64_t length = longest(rows);
    at::Tensor tokens = at::full({std::ssize(rows), length}, kPad, at::kLong);
    at::Tensor mask = at::zeros_like(tokens);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto count = std::ssize(rows[i]);
      const auto row = static_cast<std::int64_t>(i);
      const std::int64_t first = in_front ? length - count : 0;
      tokens[row].narrow(0, first, count).copy_(at::tensor(rows[i], at::kLong));
      mask[row].narrow(0, first, count).fill_(1);
    }
    return {tokens, mask};
  }

  testing::TemporaryFolder folder_;
  bool is_gpt2_;
};

/// Expects each row of `all` to have its text behind `skipped` tokens, and then padding.
void expect_rows(const at::Tensor& all, const std::vector<std::vector<Tokens>>& texts, std::int64_t skipped,
                 const std::string& label) {
  std::vector<Tokens> flat;
  for (const auto& row : texts) flat.insert(flat.end(), row.begin(), row.end());
  ASSERT_EQ(all.size(0), std::ssize(flat)) << label;
  for (std::int64_t row = 0; row < all.size(0); ++row) {
    const auto& text = flat[static_cast<std::size_t>(row)];
    const at::Tensor added = all[row].slice(0, skipped);
    ASSERT_GE(added.size(0), std::ssize(text)) << label;
    EXPECT_TRUE(at::equal(added.narrow(0, 0, std::ssize(text)), at::tensor(text, at::kLong)))
        << label << "\nrow " << row << ": " << added << "\nexpected " << at::tensor(text, at::kLong);
    EXPECT_TRUE(added.slice(0, std::ssize(text)).eq(kPad).all().item<bool>()) << label << "\nrow " << row;
  }
}

/// One computing thread: for models this small, waiting for others takes most of the time.
struct OneThread {
  OneThread() { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before); }
  int before = at::get_num_threads();
};

/// In a batch, whose rows have different lengths, and alone.
void expect_all_settings(const std::string& name) {
  const OneThread one_thread;
  const ModelFolder folder(name);
  for (const auto& line : lines_with("prompts", "seed")) {
    if (line.at("model") != name) continue;
    folder.write("generation_config.json", line.at("settings"));
    const auto model = folder.load();
    const auto prompts = line.at("prompts").get<std::vector<Tokens>>();
    const auto texts = line.at("texts").get<std::vector<std::vector<Tokens>>>();
    const std::string label = name + " " + line.at("settings").dump();
    expect_rows(model.generate(prompts, {}), texts, model.skipped(prompts), label + " in a batch");
    for (std::size_t row = 0; row < prompts.size(); ++row) {
      const std::vector<Tokens> one = {prompts[row]};
      expect_rows(model.generate(one, {}), std::vector<std::vector<Tokens>>(1, texts[row]),
                  model.skipped(one), label + " alone");
    }
  }
}

TEST(GenerationGolden, AGpt2WritesTheTextsOfItsPeerWithEachSetting) { expect_all_settings("gpt2"); }
TEST(GenerationGolden, ABartWritesTheTextsOfItsPeerWithEachSetting) { expect_all_settings("bart"); }

TEST(GenerationGolden, ProcessorsAndWarpersGiveTheDistributionOfTheirPeer) {
  for (const auto& line : lines_with("scores")) {
    const std::string label = line.at("settings").dump();
    const GenerationSettings settings({}, read_generation(line.at("settings"), "golden"), "golden");
    const auto texts = line.at("texts").get<std::vector<Tokens>>();
    std::vector<TextSoFar> own;
    std::vector<const TextSoFar*> pointers;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      own.push_back({.tokens = texts[i],
                     .prompt = line.at("prompt"),
                     .limits = {.most = 5, .least = settings.config().min_new_tokens.value_or(0)},
                     .row = i / static_cast<std::size_t>(settings.beams())});
    }
    for (const auto& text : own) pointers.push_back(&text);
    const at::Tensor places = at::arange(std::ssize(texts) * 50, at::kDouble);
    at::Tensor scores =
        (at::sin(places * places * 0.0310585 + places * 0.7) * 4).to(at::kFloat).view({-1, 50});
    if (settings.beams() > 1) scores = scores.log_softmax(-1);
    const LogitsProcessors processors(settings, line.at("sources").get<std::vector<Tokens>>());
    const at::Tensor found = processors(scores, pointers).contiguous();
    std::vector<float> expected;
    for (const auto& row : line.at("scores")) {
      for (const auto& value : row)
        expected.push_back(value.is_null() ? -std::numeric_limits<float>::infinity() : value.get<float>());
    }
    ASSERT_EQ(found.numel(), std::ssize(expected));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const float value = found.const_data_ptr<float>()[i];
      if (std::isinf(expected[i]) || std::isinf(value)) {
        ASSERT_EQ(value, expected[i]) << label << ", score " << i;
      } else {
        ASSERT_NEAR(value, expected[i], 1e-5 * std::max(1.F, std::abs(expected[i])))
            << label << ", score " << i;
      }
    }
  }
}

/// The random numbers of LibTorch's CPU with MKL.
TEST(GenerationGolden, SamplesAreThoseOfItsPeerWithTheSameSeed) {
  if (!at::hasMKL()) GTEST_SKIP() << "without MKL, a seed gives other random numbers";
  for (const auto& line : lines_with("seed")) {
    const ModelFolder folder(line.at("model"));
    folder.write("generation_config.json", line.at("settings"));
    const auto model = folder.load();
    const auto prompts = line.at("prompts").get<std::vector<Tokens>>();
    const auto texts = line.at("texts").get<std::vector<std::vector<Tokens>>>();
    const std::string label = line.at("model").get<std::string>() + " " + line.at("settings").dump();
    expect_rows(model.generate(prompts, {.seed = line.at("seed")}), texts, model.skipped(prompts), label);
  }
}

TEST(GenerationGolden, AFoldersFilesCountAsForTransformers) {
  const ModelFolder folder("bart");
  const Json config = Json::parse(std::ifstream(folder.path() / "config.json"));
  for (const auto& line : lines_with("config")) {
    Json fields = config;
    fields.update(line.at("config"));
    folder.write("config.json", fields);
    std::filesystem::remove(folder.path() / "generation_config.json");
    if (!line.at("generation").is_null()) folder.write("generation_config.json", line.at("generation"));
    const auto sources = std::vector<Tokens>{{3, 10, 17, 24, 31, 38, 45, 2}};
    const std::vector<std::vector<Tokens>> texts(1, line.at("texts").get<std::vector<Tokens>>());
    expect_rows(folder.load().generate(sources, {}), texts, 0, line.dump());
  }
}

}  // namespace
}  // namespace lockstep::models
