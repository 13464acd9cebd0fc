#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// What a template may use before it fails. Templates come with models of strangers: one that would not end,
/// or that would fill the memory, is an error.
struct ChatTemplateLimits {
  /// Statements, expressions, elements of lists, and 256 bytes of text that is searched; a loop's round is
  /// eight, a macro's call sixteen. They take a second or two.
  std::uint64_t steps = 10'000'000;
  /// Bytes of all texts and lists that are made, the result among them.
  std::uint64_t bytes = std::uint64_t{512} << 20U;
};

/// Options of ChatTemplate::render().
struct RenderOptions {
  ChatTemplateLimits limits = {};
  /// What strftime_now() shows, in local time; by default the time of the call.
  std::optional<std::chrono::system_clock::time_point> now = std::nullopt;
};

/// A part of a rendered text: characters (code points, as in Python) from `begin` to before `end`.
struct TextSpan {
  std::size_t begin = 0;
  std::size_t end = 0;
  friend bool operator==(const TextSpan&, const TextSpan&) = default;
};

/// A conversation as the text that its model was trained on.
struct RenderedChat {
  std::string text;
  /// What the assistant says: the template's `{% generation %}` blocks, in the order of the text. Empty for a
  /// template without such blocks.
  std::vector<TextSpan> generated;
};

/// A chat template: the Jinja of `chat_template.jinja` and of the field `chat_template` in
/// tokenizer_config.json, with what transformers adds to it and sets. Renders the same text, byte for byte.
///
///     ChatTemplate chat(source);
///     auto text = chat.render({{"messages", messages}, {"add_generation_prompt", true}}).text;
///
/// *The language.* for with loop, else, conditions, `recursive`, break and continue; if; set; namespace;
/// macro, call and caller; with; filter; raw; `generation`; all operators, slices and tests; the filters and
/// the methods of strings, lists and dictionaries that docs/design.md lists; raise_exception, strftime_now,
/// range, dict. As in the sandbox, nothing changes a list or a dictionary. Templates that include others, and
/// integers beyond 64 bits, are errors.
///
/// *Threads.* Immutable: any number of threads may use it. Copies are cheap. Everything is *Local*.
class ChatTemplate {
 public:
  /// Reads a template in UTF-8; `name` is its name in errors. Throws DataError, with the line, for one that
  /// is no template, is nested too deeply, or has more than 4 MiB.
  explicit ChatTemplate(std::string_view source, const std::string& name = "the chat template");

  /// Renders it with these variables, an object of JSON: `messages`, `tools`, `documents`,
  /// `add_generation_prompt`, special tokens such as `bos_token`, and the template's own. Throws DataError,
  /// with the template's line, for what the template refuses or cannot do, and beyond the limits; UsageError
  /// if the variables are not an object.
  RenderedChat render(const nlohmann::ordered_json& variables, const RenderOptions& options = {}) const;

  /// Whether it has `{% generation %}` blocks, and can tell what the assistant says.
  bool marks_generation() const noexcept;
  const std::string& source() const noexcept;

 private:
  struct Parts;
  std::shared_ptr<const Parts> parts_;
};

}  // namespace lockstep
