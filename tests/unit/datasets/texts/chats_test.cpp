#include "lockstep/datasets/chats.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"
#include "support/throws.hpp"
#include "unit/datasets/texts/chat_files.hpp"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

class Chats : public testing::ChatFiles {
 protected:
  ChatDataOptions options(const ordered_json& given = ordered_json::object()) const {
    ChatDataOptions made{.tokenizer = model()};
    made.assistant_only_loss = given.value("assistant_only_loss", false);
    if (given.contains("completion_only_loss"))
      made.completion_only_loss = given.at("completion_only_loss").get<bool>();
    made.max_length = given.value("packing", false) ? 0 : given.value("max_length", 64);
    made.keep_end = given.value("truncation_mode", "keep_start") == "keep_end";
    return made;
  }

  /// The rows that have a label, of which `labels` are the labels.
  static Lists with_label(const Lists& all, const Lists& labels) {
    Lists kept;
    for (std::size_t i = 0; i < all.size(); ++i) {
      // Nothing predicts the first one.
      if (std::any_of(labels[i].begin() + 1, labels[i].end(),
                      [](auto label) { return label != kNotTrained; }))
        kept.push_back(all[i]);
    }
    return kept;
  }
};

/// Token for token what trl's SFTTrainer prepares, but for rows without a label.
TEST_F(Chats, AreThoseOfTrl) {
  int dropped = 0;
  for (const auto& made : data_.at("sft")) {
    SCOPED_TRACE(made.at("rows").dump() + made.at("options").dump());
    const auto& given = made.at("options");
    auto tokens = tokenize_chats(rows(data_["rows"][made["rows"].get<std::string>()]), options(given), map());
    if (given.value("packing", false)) {
      const auto strategy = given.value("packing_strategy", "bfd");
      const auto packing = strategy == "wrapped" ? ChatPacking::wrapped
                           : strategy == "bfd"   ? ChatPacking::bfd
                                                 : ChatPacking::bfd_split;
      tokens = pack_chats(tokens, given.at("max_length"), packing, map());
    }
    const auto labels = made.at("labels").get<Lists>();
    const auto expected = [&](const char* name) { return with_label(made.at(name).get<Lists>(), labels); };
    EXPECT_EQ(lists(tokens, "input_ids"), expected("ids"));
    EXPECT_EQ(lists(tokens, "labels"), expected("labels"));
    if (made.contains("positions")) {
      EXPECT_EQ(lists(tokens, "position_ids"), expected("positions"));
    }
    dropped += static_cast<int>(labels.size()) - static_cast<int>(tokens.num_rows());
  }
  EXPECT_EQ(dropped, 4);
}

TEST_F(Chats, NameTheRowAndWhatToDo) {
  const auto messages = data_["rows"]["messages"];
  const auto tokens_of = [&](const ordered_json& given, const ChatDataOptions& options) {
    return tokenize_chats(rows(given), options, map());
  };
  auto assistant_only = options({{"assistant_only_loss", true}});
  const ordered_json user = {{{"messages", {{{"role", "user"}, {"content", "Hi"}}}}}};
  EXPECT_THROWS(tokens_of(user, assistant_only), DataError, "row 0", "the assistant says nothing");
  EXPECT_THROWS(tokens_of(data_["rows"]["texts"], assistant_only), UsageError,
                "assistant_only_loss needs conversations");
  assistant_only.chat_template = "{{ messages[0].content }}";
  EXPECT_THROWS(tokens_of(messages, assistant_only), UsageError, "{% generation %}", "chat_template.jinja");
  auto short_rows = options({{"assistant_only_loss", true}});
  short_rows.max_length = 2;
  EXPECT_THROWS(tokens_of(messages, short_rows), UsageError, "none of the 5 rows", "raise max_length");
  auto refusing = options();
  refusing.chat_template = "{{ raise_exception('no ' ~ messages[0].role) }}";
  EXPECT_THROWS(tokens_of(messages, refusing), DataError, "row 0", "line 1", "no user");
  EXPECT_THROWS(tokens_of({{{"prompt", "x"}}}, options()), UsageError, "'completion'", "it has 'prompt'");
  EXPECT_THROWS(tokens_of({{{"other", "x"}}}, options()), UsageError, "'messages'", "'text'");
  EXPECT_THROWS(
      tokens_of({{{"prompt", "x"}, {"completion", nullptr}}, {{"prompt", "x"}, {"completion", "y"}}},
                options()),
      DataError, "row 0", "must both be texts");
  auto whole_rows = options({{"assistant_only_loss", true}});
  whole_rows.max_length = 0;
  EXPECT_THROWS(pack_chats(tokens_of(messages, whole_rows), 2, ChatPacking::bfd, map()), UsageError,
                "none of the 5 rows", "raise max_length");
  EXPECT_THROWS(pack_chats(tokens_of(messages, options()), 0, ChatPacking::bfd, map()), UsageError,
                "max_length must be 1 or more");
}

/// Of a text of one token, and of a row whose only label is the first one's, nothing is trained.
TEST_F(Chats, RowsWithoutATokenThatIsPredictedAreLeftOut) {
  const ordered_json texts = {{{"text", "One two three four"}}, {{"text", "One"}}, {{"text", "Two"}}};
  auto given = options();
  const auto all = lists(tokenize_chats(rows(texts), given, map()), "input_ids");
  given.max_length = 1;
  EXPECT_THROWS(tokenize_chats(rows(texts), given, map()), UsageError, "none of the 3 rows");
  given.max_length = 0;
  const auto whole = tokenize_chats(rows(texts), given, map());
  EXPECT_EQ(lists(whole, "input_ids"), all);
  EXPECT_THROWS(pack_chats(whole, 1, ChatPacking::wrapped, map()), UsageError, "none of the 3 rows");
}

/// ultrachat_200k has a `prompt` beside its `messages`, which repeats the first of them.
TEST_F(Chats, APromptBesideMessagesIsNotUsed) {
  auto given = data_["rows"]["messages"];
  const auto expected = tokenize_chats(rows(given), options(), map());
  for (auto& row : given) row["prompt"] = row["messages"][0]["content"];
  for (const char* name : {"messages", "conversations"}) {
    auto renamed = given;
    for (auto& row : renamed) {
      const ordered_json messages = row["messages"];
      row.erase("messages");
      row[name] = messages;
    }
    const auto tokens = tokenize_chats(rows(renamed), options(), map());
    EXPECT_EQ(lists(tokens, "input_ids"), lists(expected, "input_ids")) << name;
    EXPECT_EQ(lists(tokens, "labels"), lists(expected, "labels")) << name;
  }
  const auto texts = ordered_json::array({{{"prompt", "One"}, {"text", "One two"}}});
  EXPECT_EQ(lists(tokenize_chats(rows(texts), options(), map()), "labels")[0].size(),
            Tokenizer::from_pretrained(model()).encode("One two").ids.size() + 1);
  auto completions = options({{"completion_only_loss", true}});
  EXPECT_THROWS(tokenize_chats(rows(given), completions, map()), UsageError, "'completion'");
}

/// A row's own tools and variables reach the template.
TEST_F(Chats, TakeToolsAndVariablesOfTheirRows) {
  auto given = options();
  given.chat_template = "{{ tools[0].name }} {{ style }} {{ messages[0].content }}";
  const ordered_json one = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}},
                            {"tools", "[{\"name\": \"f\"}]"},
                            {"chat_template_kwargs", {{"style", "loud"}}}};
  const auto tokens = tokenize_chats(rows(ordered_json::array({one})), given, map());
  EXPECT_EQ(lists(tokens, "input_ids")[0],
            Tokenizer::from_pretrained(model()).encode("f loud Hi", {.add_special_tokens = false}).ids);
}

ordered_json call_of(const ordered_json& arguments) {
  const ordered_json call = {{"role", "assistant"},
                             {"tool_calls", {{{"function", {{"name", "f"}, {"arguments", arguments}}}}}}};
  return {{"messages", {{{"role", "user"}, {"content", "Hi"}}, call}}, {"number", 7}};
}

/// Columns would give each call the arguments of all others, and an argument one type.
TEST_F(Chats, ShowNoArgumentsOfOtherRows) {
  auto given = options();
  given.max_length = 0;
  given.chat_template = "{{ messages | tojson }}{{ tools | tojson }}";
  auto with_tools = call_of({{"x", nullptr}, {"z", {1, "two", 0.5}}});
  with_tools["tools"] = {{{"name", "f"}, {"parameters", {{"z", {{"type", "list"}}}}}}};
  const ordered_json all = {call_of({{"x", 1}}), call_of({{"y", "q"}}), call_of({{"x", "text"}}), with_tools};
  const auto chats = load_chats(file(all));
  EXPECT_EQ(chats.column<std::int64_t>("number")[3], 7);
  EXPECT_NE(chats.features()["messages"].json().find("Json"), std::string::npos);
  const auto copy = model().parent_path() / "saved";
  chats.save_to_disk(copy);
  for (const auto& rows : {chats, load_chats(copy)}) {
    const auto ids = lists(tokenize_chats(rows, given, map()), "input_ids");
    const auto tokenizer = Tokenizer::from_pretrained(model());
    for (std::size_t row = 0; row < all.size(); ++row) {
      tokenizer::ChatOptions shown{.chat_template = given.chat_template};
      if (all[row].contains("tools")) shown.tools = &all[row]["tools"];
      const auto text = tokenizer.apply_chat_template(all[row]["messages"], shown).text;
      EXPECT_EQ(ids[row], tokenizer.encode(text, {.add_special_tokens = false}).ids) << text;
    }
  }
}

/// Arguments and numbers of other types in another file.
TEST_F(Chats, OfSeveralFilesAreOne) {
  auto one = call_of({{"x", 1}}), other = call_of({{"x", "text"}});
  other["number"] = 0.5;
  const auto first = file(ordered_json::array({one}));
  file(ordered_json::array({other}));
  const auto rows = load_chats(first.parent_path() / "rows*.jsonl");
  EXPECT_EQ(rows.num_rows(), 2);
  EXPECT_EQ(rows.column<double>("number")[1], 0.5);
}

TEST_F(Chats, OfPlainMessagesStayColumns) {
  const ordered_json plain = {{{"messages", {{{"role", "user"}, {"content", "Hi"}}}}},
                              {{"messages", {{{"role", "user"}, {"name", "Ann"}, {"content", "Hi"}}}}}};
  EXPECT_TRUE(load_chats(file(plain)).column("messages").type().is_list());
  EXPECT_THROWS(load_chats(file({{{"messages", "x"}, {"n", 1}}, {{"messages", "x"}, {"n", "one"}}})),
                DataError, "line 2", "int64");
}

}  // namespace
}  // namespace lockstep
