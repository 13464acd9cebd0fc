#include "lockstep/tokenizers/chat_template.hpp"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"
#include "tokenizers/jinja/interpreter.hpp"
#include "tokenizers/jinja/json_form.hpp"
#include "tokenizers/jinja/known_names.hpp"
#include "tokenizers/jinja/parser.hpp"
#include "tokenizers/utf8.hpp"

namespace lockstep {
namespace {

constexpr std::size_t kLongestTemplate = std::size_t{4} << 20U;

jinja::Tree parse_template(const std::string& source, const std::string& name) {
  if (source.size() > kLongestTemplate) throw DataError(fmt::format("{} has more than 4 MiB.", name));
  tokenizer::require_utf8(source, name);
  try {
    auto tree = jinja::parse(source);
    jinja::check_names(tree);
    return tree;
  } catch (const jinja::SyntaxFailure& failure) {
    throw DataError(fmt::format("{}, line {}: {}.", name, failure.line, failure.message));
  } catch (const jinja::Failure& failure) {
    throw DataError(fmt::format("{}: {}", name, failure.message));
  }
}

}  // namespace

struct ChatTemplate::Parts {
  std::string source;
  std::string name;
  jinja::Tree tree;
};

ChatTemplate::ChatTemplate(std::string_view source, const std::string& name) {
  auto parts = std::make_shared<Parts>();
  parts->source = source;
  parts->name = name;
  parts->tree = parse_template(parts->source, name);
  parts_ = std::move(parts);
}

RenderedChat ChatTemplate::render(const nlohmann::ordered_json& variables,
                                  const RenderOptions& options) const {
  if (!variables.is_object())
    throw UsageError("ChatTemplate::render() needs its variables as an object of JSON.");
  jinja::Budget budget(options.limits.steps, options.limits.bytes);
  jinja::Interpreter interpreter(parts_->tree, budget,
                                 options.now.value_or(std::chrono::system_clock::now()));
  RenderedChat rendered;
  try {
    for (const auto& [name, value] : variables.items())
      interpreter.set(name, jinja::from_json(budget, value));
    rendered.text = interpreter.run();
  } catch (const jinja::Failure& failure) {
    throw DataError(fmt::format("{}, line {}: {}", parts_->name, interpreter.line(), failure.message));
  }
  for (const auto& [begin, end] : interpreter.generated())
    rendered.generated.push_back({.begin = begin, .end = end});
  return rendered;
}

bool ChatTemplate::marks_generation() const noexcept { return parts_->tree.has_generation; }

const std::string& ChatTemplate::source() const noexcept { return parts_->source; }

}  // namespace lockstep
