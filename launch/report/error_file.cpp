#include "report/error_file.hpp"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/core/atomic_file.hpp"

namespace lockstep::launch {

nlohmann::json error_content(const std::string& path) {
  constexpr std::streamsize kLongest = 64 * 1024;
  std::ifstream file(path, std::ios::binary);
  std::string text(static_cast<std::size_t>(kLongest), '\0');
  file.read(text.data(), kLongest);
  text.resize(static_cast<std::size_t>(file.gcount()));
  auto content = nlohmann::json::parse(text, nullptr, false);
  return content.is_object() && content.contains("message") ? content : nlohmann::json(nullptr);
}

void pass_on_error_file(nlohmann::json content, const std::string& to, int exit_code) {
  using Json = nlohmann::json;
  if (to.empty() || !content.is_object()) return;
  Json& message = content["message"];
  // The older form, a text alone, has no place for the code.
  if (message.is_object()) message["errorCode"] = exit_code;
  AtomicFile copy(to);
  copy.write(content.dump(-1, ' ', false, Json::error_handler_t::replace));
  copy.commit();
}

std::string last_lines(const std::string& path, int count) {
  constexpr std::streamoff kMost = 4096;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return "";
  const std::streamoff size = file.tellg();
  file.seekg(std::max<std::streamoff>(0, size - kMost));
  std::string text(static_cast<std::size_t>(std::min(size, kMost)), '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  auto start = text.size();
  for (int line = 0; line < count && start != std::string::npos && start > 0; ++line) {
    start = text.rfind('\n', start - 1);
  }
  return start == std::string::npos ? text : text.substr(start + (text[start] == '\n' ? 1 : 0));
}

}  // namespace lockstep::launch
