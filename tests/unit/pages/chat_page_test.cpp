// The code in docs/chat.md. tests/lint/snippets.py compares its lines with the page.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "folder_of_a_page.hpp"
#include "lockstep/datasets/chats.hpp"
#include "lockstep/datasets/preferences.hpp"

namespace {

using lockstep::ArrowDataset;
using lockstep::Tokenizer;
using lockstep::testing::FolderOfAPage;
using lockstep::testing::write_bytes;
using nlohmann::ordered_json;

/// A model's folder, and conversations; the cache is in the page's folder, too.
void write_files() {
  setenv("LOCKSTEP_CACHE", "cache", 1);
  std::ifstream file(LOCKSTEP_CHAT_DATA_GOLDEN);
  const auto data = ordered_json::parse(file);
  std::filesystem::create_directory("model");
  std::filesystem::copy_file(LOCKSTEP_TOKENIZER_DIR "/roberta.json", "model/tokenizer.json");
  for (const char* name : {"tokenizer_config.json", "chat_template.jinja"})
    write_bytes(std::filesystem::path("model") / name, data["files"][name].get<std::string>());
  std::string lines;
  for (const auto& row : data["rows"]["messages"]) lines += row.dump() + "\n";
  write_bytes("chats.jsonl", lines);
  write_bytes("pairs.jsonl",
              "{\"prompt\": \"All:\", \"chosen\": \" Resolved\", \"rejected\": \" No more\"}\n");
}

TEST(ChatPage, RendersAConversation) {
  const FolderOfAPage folder;
  write_files();
  auto tokenizer = Tokenizer::from_pretrained("model");
  ordered_json messages = {{{"role", "user"}, {"content", "Who is there?"}}};
  auto prompt = tokenizer.apply_chat_template(messages, {.add_generation_prompt = true});
  // prompt.text, prompt.encoding.ids

  messages.push_back({{"role", "assistant"}, {"content", "A citizen."}});
  auto chat = tokenizer.apply_chat_template(messages, {.return_assistant_tokens_mask = true});
  // chat.assistant_masks: 1 for the tokens of "A citizen." and the end of the turn
  EXPECT_EQ(prompt.text, "<s>USER: Who is there?\nA: ");
  EXPECT_EQ(chat.assistant_masks.size(), chat.encoding.size());
}

TEST(ChatPage, PreparesConversations) {
  const FolderOfAPage folder;
  write_files();
  auto rows = lockstep::load_chats("chats.jsonl");
  auto tokens = lockstep::tokenize_chats(
      rows, {.tokenizer = "model", .assistant_only_loss = true, .max_length = 0});  // input_ids, labels
  auto packed = lockstep::pack_chats(tokens, 64);  // and position_ids: texts of a row do not see each other
  EXPECT_GT(packed.num_rows(), 0);
  EXPECT_LT(packed.num_rows(), tokens.num_rows());
}

TEST(ChatPage, PreparesPreferences) {
  const FolderOfAPage folder;
  write_files();
  auto pairs = lockstep::tokenize_preferences(lockstep::load_chats("pairs.jsonl"), {.tokenizer = "model"});
  EXPECT_EQ(pairs.column_names(),
            (std::vector<std::string>{"chosen_ids", "chosen_labels", "rejected_ids", "rejected_labels"}));
  EXPECT_EQ(pairs.num_rows(), 1);
}

}  // namespace
