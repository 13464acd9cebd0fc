#include "text/chats.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
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

std::int64_t padding_token(const lockstep::Tokenizer& tokenizer) {
  auto pad = tokenizer.special_token_id("pad_token");
  if (!pad) pad = tokenizer.special_token_id("eos_token");
  return pad.value_or(0);
}

}  // namespace texts
