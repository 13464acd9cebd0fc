#include "lockstep/tokenizers/chat_template.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/core/error.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// strftime_now() shows local time; the goldens have that of UTC.
void use_utc() {
  setenv("TZ", "UTC", 1);
  tzset();
}

RenderOptions at_epoch() { return {.limits = {}, .now = std::chrono::system_clock::from_time_t(0)}; }

std::string render(const std::string& source, const ordered_json& variables = ordered_json::object()) {
  return ChatTemplate(source).render(variables, at_epoch()).text;
}

std::string error_of(const std::string& source, const ordered_json& variables = ordered_json::object()) {
  return testing::message_of<DataError>([&] { render(source, variables); });
}

TEST(ChatTemplate, RendersWhatJinja2Renders) {
  use_utc();
  std::ifstream file(LOCKSTEP_CHATS_GOLDEN);
  std::size_t rows = 0;
  for (std::string line; std::getline(file, line); ++rows) {
    const auto row = ordered_json::parse(line);
    std::string source = row.at("template");
    if (source.ends_with(".jinja")) source = file_text(std::string(LOCKSTEP_CHAT_TEMPLATES) + "/" + source);
    SCOPED_TRACE(source + "\n" + row.at("variables").dump());
    if (row.contains("fails")) {
      EXPECT_THROW(render(source, row.at("variables")), DataError);
      continue;
    }
    const auto chat = ChatTemplate(source).render(row.at("variables"), at_epoch());
    EXPECT_EQ(chat.text, row.at("text").get<std::string>());
    auto spans = ordered_json::array();
    for (const auto& span : chat.generated) spans.push_back({span.begin, span.end});
    EXPECT_EQ(spans, row.at("generated"));
  }
  EXPECT_GT(rows, 500U);
}

TEST(ChatTemplate, TakesAwayWhiteSpaceLikeTransformers) {
  EXPECT_EQ(render("a\n  {% if true %}\nb\n  {% endif %}\nc\n"), "a\nb\nc");
  EXPECT_EQ(render("a \n{%- if true -%}\n b {% endif +%}\nc"), "ab \nc");
  EXPECT_EQ(render("  {%+ if true %}x{% endif %}"), "  x");
  EXPECT_EQ(render("a\r\n{# note #}\r\nb"), "a\nb");
  EXPECT_EQ(render("{{- 'a' -}}  \n  b"), "ab");
}

TEST(ChatTemplate, TellsWhatTheAssistantSays) {
  const ChatTemplate chat(
      "\xC3\xA4{% for m in messages %}{% generation %}{{ m }}{% endgeneration %}|{% endfor %}");
  EXPECT_TRUE(chat.marks_generation());
  const auto rendered = chat.render({{"messages", {"\xE4\xBD\xA0", "bc"}}});
  EXPECT_EQ(rendered.text, "\xC3\xA4\xE4\xBD\xA0|bc|");
  EXPECT_EQ(rendered.generated, (std::vector<TextSpan>{{1, 2}, {3, 5}}));
  EXPECT_FALSE(ChatTemplate("{{ messages }}").marks_generation());
}

TEST(ChatTemplate, NamesTheLineAndWhatIsWrong) {
  EXPECT_EQ(error_of("a\n{% for x %}"), "the chat template, line 2: expected 'in', not '%}'.");
  EXPECT_EQ(error_of("{% if a %}\nb"),
            "the chat template, line 2: a block is not closed: '{% endif %}' is missing.");
  EXPECT_EQ(error_of("\n\n{{ x.y }}"),
            "the chat template, line 3: 'x' is undefined: give it as a variable of the template.");
  EXPECT_EQ(error_of("{{ messages[0].role.x.y }}", {{"messages", {{{"role", "user"}}}}}),
            "the chat template, line 1: a value of type 'str' has no attribute or element 'x'.");
  EXPECT_EQ(error_of("\n{{ raise_exception('roles must alternate') }}"),
            "the chat template, line 2: the template refuses the conversation: roles must alternate");
  EXPECT_EQ(error_of("{{ 1|upperr }}"), "the chat template, line 1: the filter 'upperr' does not exist.");
  EXPECT_EQ(error_of("{{ 1|urlize }}"),
            "the chat template, line 1: the filter 'urlize' is not supported in chat templates.");
  EXPECT_EQ(error_of("{% include 'x' %}"),
            "the chat template, line 1: the tag 'include' is not supported: a chat template stands alone.");
  EXPECT_EQ(error_of("{{ 9223372036854775807 + 1 }}"),
            "the chat template, line 1: an integer is beyond 64 bits.");
  EXPECT_EQ(error_of("{% break %}"), "the chat template, line 1: 'break' is outside of a loop.");
}

TEST(ChatTemplate, IsASandbox) {
  EXPECT_EQ(error_of("{{ x.append(1) }}", {{"x", ordered_json::array()}}),
            "the chat template, line 1: the template must not use 'append' of a value of type 'list': the "
            "sandbox forbids it.");
  EXPECT_NE(error_of("{{ ''.__class__.__mro__ }}").find("the sandbox forbids it"), std::string::npos);
  EXPECT_NE(error_of("{% set n = namespace(_x=1) %}").find("begins with '_'"), std::string::npos);
  EXPECT_EQ(render("{{ x.append is defined }}", {{"x", ordered_json::array()}}), "False");
}

TEST(ChatTemplate, EndsWhatWouldNotEnd) {
  const auto has = [](const std::string& error, const char* part) {
    return error.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(error_of("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"),
                  "more steps"));
  EXPECT_TRUE(
      has(error_of(
              "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}"),
          "more bytes"));
  EXPECT_TRUE(has(error_of("{{ 'x' * 9999999999 }}"), "more bytes"));
  EXPECT_TRUE(has(error_of("{{ ''.ljust(9999999999) }}"), "more bytes"));
  EXPECT_TRUE(has(error_of("{{ [[1]]|tojson(indent=9999999999) }}"), "more bytes"));
  EXPECT_TRUE(has(error_of("{{ ('a' * 99999).replace('a', 'b' * 99999) }}"), "more bytes"));
  EXPECT_TRUE(has(error_of("{{ range(9999999999) }}"), "at most 100000 numbers"));
  EXPECT_TRUE(has(error_of("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), "call themselves too deeply"));
  EXPECT_TRUE(
      has(error_of("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}"), "call themselves too deeply"));
  EXPECT_TRUE(has(
      error_of(
          "{% set n = namespace(x=[]) %}{% for i in range(9999) %}{% set n.x = [n.x, n.x] %}{% endfor %}"),
      "nested more than 200 levels"));
  EXPECT_TRUE(has(error_of("{% set n = namespace(x=1) %}{% set n.x = n %}{{ n }}"), "nested too deeply"));
  EXPECT_TRUE(has(error_of("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}"),
                  "nested too deeply"));
  EXPECT_TRUE(has(error_of("{{ 1" +
                           [] {
                             std::string sum;
                             for (int i = 0; i < 5000; ++i) sum += "+1";
                             return sum;
                           }() +
                           " }}"),
                  "nested more than 150 levels"));
}

TEST(ChatTemplate, KeepsItsLimits) {
  const ChatTemplate chat("{% for i in range(1000) %}x{% endfor %}");
  EXPECT_EQ(chat.render(ordered_json::object()).text.size(), 1000U);
  EXPECT_THROW(chat.render(ordered_json::object(), {.limits = {.steps = 100}, .now = {}}), DataError);
  EXPECT_THROW(chat.render(ordered_json::object(), {.limits = {.bytes = 100}, .now = {}}), DataError);
}

TEST(ChatTemplate, RefusesVariablesThatAreNone) {
  const ChatTemplate chat("{{ x }}");
  EXPECT_THROW(chat.render(ordered_json::array()), UsageError);
  EXPECT_THROW(chat.render({{"x", std::uint64_t{1} << 63U}}), DataError);
  EXPECT_THROW(chat.render({{"x", "\xFF"}}), DataError);
  EXPECT_THROW(ChatTemplate("\xFF"), DataError);
}

}  // namespace
}  // namespace lockstep
