#include "lockstep/datasets/preferences.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"
#include "lockstep/datasets/chats.hpp"
#include "support/throws.hpp"
#include "unit/datasets/texts/chat_files.hpp"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

class Preferences : public testing::ChatFiles {
 protected:
  PreferenceDataOptions options() const { return {.tokenizer = model(), .max_length = 32}; }

  ArrowDataset tokens_of(const ordered_json& given, const PreferenceDataOptions& options) {
    return tokenize_preferences(rows(given), options, map());
  }
  ArrowDataset tokens_of(const ordered_json& given) { return tokens_of(given, options()); }

  Lists ids_of(const std::string& text) const {
    return {Tokenizer::from_pretrained(model()).encode(text, {.add_special_tokens = false}).ids};
  }
};

ordered_json user(const std::string& text) { return {{"role", "user"}, {"content", text}}; }
ordered_json assistant(const std::string& text) { return {{"role", "assistant"}, {"content", text}}; }
ordered_json conversation(std::initializer_list<ordered_json> messages) {
  auto list = ordered_json::array();
  for (const auto& message : messages) list.push_back(message);
  return list;
}

/// Token for token what trl's DPOTrainer prepares.
TEST_F(Preferences, AreThoseOfTrl) {
  std::ifstream file(LOCKSTEP_DPO_GOLDEN);
  const auto recorded = ordered_json::parse(file);
  ASSERT_EQ(recorded.at("pairs").size(), 9U);
  for (const auto& made : recorded.at("pairs")) {
    SCOPED_TRACE(made.at("rows").dump() + made.at("options").dump());
    auto given = options();
    given.max_length = made["options"].value("max_length", 32);
    given.keep_end = made["options"].value("truncation_mode", "keep_start") == "keep_end";
    const auto tokens = tokens_of(recorded["rows"][made["rows"].get<std::string>()], given);
    for (const char* name : {"chosen_ids", "chosen_labels", "rejected_ids", "rejected_labels"})
      EXPECT_EQ(lists(tokens, name), made.at(name).get<Lists>()) << name;
  }
}

/// Texts that differ from the first character on: the prompt is empty. trl would take a space at the end of
/// 'chosen' for it.
TEST_F(Preferences, MayShareNothingIfTheyAreTexts) {
  const auto tokens = tokens_of({{{"chosen", "yes "}, {"rejected", "no"}}});
  const auto labels = lists(tokens, "chosen_labels")[0];
  EXPECT_EQ(labels.front(), kNotTrained);
  EXPECT_EQ(std::count(labels.begin(), labels.end(), kNotTrained), 1);
}

/// Members without a value, and their order, make no difference.
TEST_F(Preferences, FindTheMessagesThatConversationsShare) {
  const ordered_json other = {{"name", nullptr}, {"content", "Go"}, {"role", "user"}};
  const auto both = tokens_of({{{"chosen", conversation({user("Go"), assistant("Yes")})},
                                {"rejected", conversation({other, assistant("No")})}}});
  const auto plain = tokens_of({{{"chosen", conversation({user("Go"), assistant("Yes")})},
                                 {"rejected", conversation({user("Go"), assistant("No")})}}});
  for (const char* name : {"chosen_ids", "chosen_labels", "rejected_ids", "rejected_labels"})
    EXPECT_EQ(lists(both, name), lists(plain, name)) << name;
}

TEST_F(Preferences, TakeToolsAndVariablesOfTheirRows) {
  auto given = options();
  given.chat_template = "{{ tools[0].name }} {{ style }} {{ messages[-1].content }}";
  const auto tokens = tokens_of({{{"prompt", conversation({user("Hi")})},
                                  {"chosen", conversation({assistant("Yes")})},
                                  {"rejected", conversation({assistant("No")})},
                                  {"tools", "[{\"name\": \"f\"}]"},
                                  {"chat_template_kwargs", {{"style", "loud"}}}}},
                                given);
  EXPECT_EQ(lists(tokens, "chosen_ids"), ids_of("f loud Yes"));
  EXPECT_EQ(lists(tokens, "rejected_ids"), ids_of("f loud No"));
}

TEST_F(Preferences, NameTheRowAndWhatToDo) {
  const auto pair = [](const ordered_json& chosen, const ordered_json& rejected) {
    return ordered_json::array({{{"chosen", chosen}, {"rejected", rejected}}});
  };
  EXPECT_THROWS(tokens_of({{{"chosen", "x"}}}), UsageError, "'chosen' and 'rejected'", "it has 'chosen'");
  EXPECT_THROWS(tokens_of({{{"completion", "x"}, {"label", true}}}), UsageError, "KTO", "pairs");
  EXPECT_THROWS(tokens_of({{{"chosen", "x"}, {"rejected", "y"}, {"images", "z"}}}), UsageError, "'images'",
                "not supported");
  EXPECT_THROWS(tokens_of(pair("x", conversation({user("y")}))), DataError, "row 0", "must both be texts");
  EXPECT_THROWS(tokens_of(pair("", "y")), DataError, "row 0", "is empty");
  EXPECT_THROWS(tokens_of(pair(conversation({user("x")}), conversation({user("y")}))), DataError, "row 0",
                "no first message in common", "'prompt'");
  EXPECT_THROWS(tokens_of({{{"prompt", conversation({user("x")})}, {"chosen", "x"}, {"rejected", "y"}}}),
                DataError, "row 0", "'prompt' must be a text beside texts");
  auto chats =
      pair(conversation({user("Go"), assistant("Yes")}), conversation({user("Go"), assistant("No")}));
  chats[0]["prompt"] = "Stay";
  EXPECT_THROWS(tokens_of(chats), DataError, "row 0", "do not contain it", "list of messages");
  chats[0]["prompt"] = nullptr;
  EXPECT_THROWS(tokens_of(chats), DataError, "row 0", "'prompt' must be");
  const auto answers = [&](const char* prompt) {
    auto row = pair(conversation({assistant("Yes")}), conversation({assistant("No")}));
    row[0]["prompt"] = prompt;
    return row;
  };
  EXPECT_THROWS(tokens_of(answers("Go")), DataError, "row 0", "'prompt' is a text",
                "give it as a list of messages");
  const ordered_json system = {{"role", "system"}, {"content", "Be short"}};
  const auto asked = conversation({system, user("Go")}),
             answered = conversation({system, user("Go"), assistant("No")});
  EXPECT_THROWS(tokens_of(pair(asked, answered)), DataError, "row 0", "'chosen' has only the prompt",
                "completion is missing");
  EXPECT_THROWS(tokens_of(pair(answered, asked)), DataError, "'rejected' has only the prompt");
  auto named = pair(conversation({user("Go"), assistant("Yes")}), conversation({user("Go")}));
  named[0]["prompt"] = "Go";
  EXPECT_THROWS(tokens_of(named), DataError, "'rejected' has only the prompt");
  chats[0].erase("prompt");
  auto silent = options();
  silent.chat_template = "{{ messages[0].content }}";
  EXPECT_THROWS(tokens_of(chats, silent), DataError, "row 0", "'chosen' has no tokens after the prompt");
  auto refusing = options();
  refusing.chat_template = "{{ raise_exception('no ' ~ messages[0].role) }}";
  EXPECT_THROWS(tokens_of(chats, refusing), DataError, "row 0", "line 1", "no user");
  auto short_rows = options();
  short_rows.max_length = 4;
  EXPECT_THROWS(tokens_of(chats, short_rows), UsageError, "each of the 1 rows has 4 tokens or more",
                "raise max_length");
  short_rows.max_length = -1;
  EXPECT_THROWS(tokens_of(chats, short_rows), UsageError, "max_length must be 0");
}

}  // namespace
}  // namespace lockstep
