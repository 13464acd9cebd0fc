#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/core/error.hpp"
#include "lockstep/tokenizers/chat_template.hpp"

namespace {

using nlohmann::ordered_json;

const ordered_json& variables() {
  static const ordered_json made = {
      {"messages",
       {{{"role", "system"}, {"content", "Be \xC3\xA4."}},
        {{"role", "user"}, {"content", {{{"type", "text"}, {"text", "Hi"}}, {{"type", "image"}}}}},
        {{"role", "assistant"},
         {"content", nullptr},
         {"tool_calls", {{{"name", "f"}, {"arguments", {{"x", 1.5}}}}}}}}},
      {"tools", {{{"name", "f"}, {"parameters", {{"type", "object"}}}}}},
      {"add_generation_prompt", true},
      {"bos_token", "<s>"}};
  return made;
}

}  // namespace

/// The input is a template.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string source(reinterpret_cast<const char*>(data), size);
  try {
    const auto chat = lockstep::ChatTemplate(source).render(
        variables(), {.limits = {.steps = 200'000, .bytes = std::uint64_t{8} << 20U}, .now = {}});
    for (const auto& span : chat.generated) {
      if (span.begin > span.end) std::abort();
    }
  } catch (const lockstep::Error&) {
  }
  return 0;
}
