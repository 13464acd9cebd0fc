#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/core/error.hpp"
#include "lockstep/tokenizers/chat_template.hpp"

// Renders chat templates as chat_compare.py says, one JSON request a line, and prints one line for each
// result: {"text", "generated"} or {"error"}.

namespace {

using lockstep::ChatTemplate;
using nlohmann::ordered_json;

ordered_json rendered(const ordered_json& request) {
  static std::map<std::string, ChatTemplate> templates;
  const std::string source = request.at("template");
  try {
    if (templates.size() > 200) templates.clear();
    const auto found = templates.try_emplace(source, source).first;
    lockstep::RenderOptions options;
    options.now = std::chrono::system_clock::from_time_t(request.value("now", std::time_t{0}));
    const auto chat = found->second.render(request.at("variables"), options);
    auto spans = ordered_json::array();
    for (const auto& span : chat.generated) spans.push_back({span.begin, span.end});
    return {{"text", chat.text}, {"generated", spans}};
  } catch (const lockstep::Error& error) {
    return {{"error", error.what()}};
  }
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const auto answer = rendered(ordered_json::parse(line));
    std::cout << answer.dump(-1, ' ', false, ordered_json::error_handler_t::replace) << std::endl;
  }
}
