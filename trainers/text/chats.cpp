#include "text/chats.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "lockstep/core/error.hpp"

namespace texts {

std::string read_chat_template(const std::string& path) {
  if (path.empty()) return {};
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw lockstep::DataError("--chat-template-path: cannot read '" + path + "'.");
  return text.str();
}

void save_chat_template(const lockstep::Trainer& trainer, const std::string& path) {
  if (path.empty()) return;
  trainer.accelerator().on_main_process([&] {
    std::filesystem::copy_file(path, std::filesystem::path(trainer.args().output_dir) / "chat_template.jinja",
                               std::filesystem::copy_options::overwrite_existing);
  });
}

std::int64_t padding_token(const lockstep::Tokenizer& tokenizer) {
  auto pad = tokenizer.special_token_id("pad_token");
  if (!pad) pad = tokenizer.special_token_id("eos_token");
  return pad.value_or(0);
}

}  // namespace texts
