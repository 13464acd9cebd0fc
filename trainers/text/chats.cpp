#include "text/chats.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>

#include "lockstep/core/error.hpp"
#include "text/files.hpp"

namespace texts {

std::string read_chat_template(const std::string& path) {
  if (path.empty()) return {};
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    throw lockstep::DataError("--chat-template-path: '" + path + "' is not a file.");
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) throw lockstep::DataError("--chat-template-path: cannot read '" + path + "'.");
  if (text.empty()) throw lockstep::DataError("--chat-template-path: '" + path + "' is empty.");
  return text;
}

void save_chat_template(const lockstep::Trainer& trainer, const std::string& path) {
  if (path.empty()) return;
  trainer.accelerator().on_main_process([&] {
    copy_unless_same(path, std::filesystem::path(trainer.args().output_dir) / "chat_template.jinja");
  });
}

bool is_end_of_turn_trained(const lockstep::Tokenizer& tokenizer, const std::string& chat_template) {
  const nlohmann::ordered_json messages = {{{"role", "user"}, {"content", "dummy"}},
                                           {{"role", "assistant"}, {"content", "dummy"}},
                                           {{"role", "user"}, {"content", "dummy"}}};
  lockstep::tokenizer::ChatOptions options;
  options.chat_template = chat_template;
  options.return_assistant_tokens_mask = true;
  lockstep::tokenizer::Chat chat;
  try {
    chat = tokenizer.apply_chat_template(messages, options);
  } catch (const lockstep::Error&) {
    return false;
  }
  const auto text_of = [&](std::size_t token, bool skips_special) {
    return tokenizer.decode({chat.encoding.ids[token]}, {.skip_special_tokens = skips_special});
  };
  for (std::size_t token = chat.assistant_masks.size(); token-- > 0;) {
    if (chat.assistant_masks[token] == 0) continue;
    if (text_of(token, false).find_first_not_of(" \t\r\n") == std::string::npos) continue;
    return text_of(token, true).empty();
  }
  return false;
}

std::int64_t padding_token(const lockstep::Tokenizer& tokenizer) {
  auto pad = tokenizer.special_token_id("pad_token");
  if (!pad) pad = tokenizer.special_token_id("eos_token");
  return pad.value_or(0);
}

}  // namespace texts
