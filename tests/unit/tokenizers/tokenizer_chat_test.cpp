#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"
#include "lockstep/tokenizers/tokenizer.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using testing::TemporaryFolder;
using testing::write_bytes;
using tokenizer::ChatOptions;

const ordered_json& chat_data() {
  static const auto data = [] {
    std::ifstream file(LOCKSTEP_CHAT_DATA_GOLDEN);
    return ordered_json::parse(file);
  }();
  return data;
}

void write_folder(const fs::path& folder) {
  fs::create_directories(folder / "additional_chat_templates");
  fs::copy_file(fs::path(LOCKSTEP_TOKENIZER_DIR) / "roberta.json", folder / "tokenizer.json");
  for (const auto& [name, text] : chat_data().at("files").items())
    write_bytes(folder / name, text.get<std::string>());
}

ChatOptions chat_options(const ordered_json& given) {
  ChatOptions options;
  options.add_generation_prompt = given.value("add_generation_prompt", false);
  options.continue_final_message = given.value("continue_final_message", false);
  options.return_assistant_tokens_mask = given.value("return_assistant_tokens_mask", false);
  options.chat_template = given.value("chat_template", "");
  if (given.contains("tools")) options.tools = &given.at("tools");
  return options;
}

TEST(TokenizerChat, IsThatOfTransformers) {
  const TemporaryFolder folder;
  write_folder(folder.path());
  const auto peer = Tokenizer::from_pretrained(folder.path());
  EXPECT_EQ(peer.settings().chat_templates.size(), 2U);
  EXPECT_TRUE(peer.marks_generation());
  for (const auto& row : chat_data().at("chats")) {
    SCOPED_TRACE(row.dump());
    const auto options = chat_options(row.at("options"));
    if (row.contains("fails")) {
      EXPECT_THROW(static_cast<void>(peer.apply_chat_template(row.at("messages"), options)), Error);
      continue;
    }
    const auto chat = peer.apply_chat_template(row.at("messages"), options);
    EXPECT_EQ(chat.text, row.at("text").get<std::string>());
    EXPECT_EQ(chat.encoding.ids, row.at("ids").get<std::vector<std::int64_t>>());
    EXPECT_EQ(chat.assistant_masks, row.at("mask").get<std::vector<std::int64_t>>());
  }
}

TEST(TokenizerChat, ReadsTemplatesOfTheConfigurationUnlessThereAreFiles) {
  const TemporaryFolder folder;
  write_folder(folder.path());
  fs::remove(folder / "chat_template.jinja");
  fs::remove_all(folder / "additional_chat_templates");
  const ordered_json messages = {{{"role", "user"}, {"content", "Hi"}}};
  const auto text_with = [&](const ordered_json& field) {
    ordered_json config =
        ordered_json::parse(chat_data()["files"]["tokenizer_config.json"].get<std::string>());
    config["chat_template"] = field;
    write_bytes(folder / "tokenizer_config.json", config.dump());
    return Tokenizer::from_pretrained(folder.path()).apply_chat_template(messages, {.tokenize = false}).text;
  };
  EXPECT_EQ(text_with("one {{ messages[0].content }}{{ bos_token }}"), "one Hi<s>");
  EXPECT_EQ(text_with({{{"name", "default"}, {"template", "two"}}, {{"name", "rag"}, {"template", "x"}}}),
            "two");
  EXPECT_THROWS(text_with({{{"name", "rag"}, {"template", "x"}}}), UsageError,
                "no template 'default': choose one of rag");
  EXPECT_THROWS(text_with(nullptr), UsageError, "has no chat template", "chat_template.jinja");
  EXPECT_THROWS(text_with(3), DataError, "chat_template is neither a text nor a list",
                "tokenizer_config.json");
  write_bytes(folder / "chat_template.jinja", "file\n");
  EXPECT_EQ(text_with("config"), "file");
}

TEST(TokenizerChat, SaysWhatIsWrong) {
  const TemporaryFolder folder;
  write_folder(folder.path());
  const auto peer = Tokenizer::from_pretrained(folder.path());
  const ordered_json messages = {{{"role", "user"}, {"content", "Hi"}}};
  EXPECT_THROWS(peer.apply_chat_template(ordered_json::array()), UsageError, "no messages");
  EXPECT_THROWS(peer.apply_chat_template("Hi"), UsageError, "must be a list of objects");
  EXPECT_THROWS(peer.apply_chat_template({"Hi"}), UsageError, "message 0 must be an object");
  EXPECT_THROWS(peer.apply_chat_template(messages, {.chat_template = "{{ x", .tokenize = false}), DataError,
                "line 1");
  EXPECT_THROWS(
      peer.apply_chat_template(messages, {.chat_template = "{{ 1 }}", .return_assistant_tokens_mask = true}),
      UsageError, "{% generation %}");
  EXPECT_THROWS(
      peer.apply_chat_template(messages, {.add_generation_prompt = true, .continue_final_message = true}),
      UsageError, "choose one");
}

TEST(TokenizerChat, KeepsTheBlanksThatAMessageEndsWith) {
  const TemporaryFolder folder;
  write_folder(folder.path());
  const auto peer = Tokenizer::from_pretrained(folder.path());
  const ordered_json messages = {{{"role", "assistant"}, {"content", {{{"type", "text"}, {"text", "so "}}}}}};
  const auto text_of = [&](const char* source) {
    return peer
        .apply_chat_template(messages,
                             {.chat_template = source, .continue_final_message = true, .tokenize = false})
        .text;
  };
  EXPECT_EQ(text_of("{{ messages[0].content[0].text }}!"), "so ");
  EXPECT_EQ(text_of("{{ messages[0].content[0].text | trim }}!"), "so");
  EXPECT_THROWS(text_of("nothing"), DataError, "cannot be continued");
}

}  // namespace
}  // namespace lockstep
