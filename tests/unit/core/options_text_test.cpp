#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"
#include "unit/core/sample_options.hpp"

namespace lockstep {
namespace {

std::string json_refusal(const std::string& text) {
  try {
    sample_table().from_json_text(text);
  } catch (const UsageError& error) {
    return error.what();
  }
  ADD_FAILURE() << "the JSON was accepted: " << text;
  return "";
}

TEST(OptionsJson, RoundTrips) {
  Sample options = sample_table()
                       .parse(std::vector<std::string>{"--epochs=3", "--clip=inf", "--data=x",
                                                       "--columns=a,b", "--no-shuffle", "--warmup=0.1"})
                       .options;
  const std::string text = sample_table().to_json_text(options);
  const Sample back = sample_table().from_json_text(text);
  EXPECT_EQ(sample_table().to_json_text(back), text);
  EXPECT_EQ(back.epochs, 3);
  EXPECT_EQ(back.clip, std::numeric_limits<double>::infinity());
  EXPECT_EQ(back.columns, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(back.warmup, 0.1);
  EXPECT_FALSE(back.compiled.has_value());
  nlohmann::json json;
  sample_table().to_json(json, options);
  EXPECT_EQ(json.at("learning_rate"), 1e-3);
  EXPECT_TRUE(json.at("compiled").is_null());
  EXPECT_EQ(json.size(), 13U);
}

TEST(OptionsJson, LaysKeysOverABase) {
  Sample base;
  base.epochs = 4;
  base.data = "x";
  const Sample result = sample_table().from_json_text(R"({"workers": 5, "data": null})", base);
  EXPECT_EQ(result.epochs, 4);
  EXPECT_EQ(result.workers, 5);
  EXPECT_FALSE(result.data.has_value());
}

TEST(OptionsJson, BadInputIsNamed) {
  EXPECT_NE(json_refusal("[").find("is not JSON"), std::string::npos);
  EXPECT_NE(json_refusal("[1]").find("expected a JSON object, not array"), std::string::npos);
  EXPECT_NE(json_refusal(R"({"epoch": 3})").find("unknown JSON key 'epoch'"), std::string::npos);
  EXPECT_NE(json_refusal(R"({"epoch": 3})").find("'epochs'"), std::string::npos);
  for (const auto* text :
       {R"({"epochs": "3"})", R"({"epochs": 0})", R"({"epochs": 1.5})", R"({"epochs": null})",
        R"({"epochs": true})", R"({"epochs": 1e30})", R"({"resume": 1})", R"({"device": "tpu"})",
        R"({"columns": "a"})", R"({"columns": [1]})", R"({"data": {}})", R"({"learning_rate": "nan"})",
        R"({"seed": -1})"}) {
    EXPECT_NE(json_refusal(text).find("JSON key '"), std::string::npos) << text;
  }
}

struct Small {
  std::int64_t epochs = 10;
  std::string device = "auto";
  bool resume = false;
  std::optional<std::string> data;
  std::vector<std::string> files;
};

OptionTable<Small> small_table() {
  return OptionTable<Small>("small", "Trains a small network on images.")
      .rest("files", &Small::files, "Files to read.")
      .add("epochs", &Small::epochs, "Passes over the training data.", at_least(1), short_name('e'))
      .add("device", &Small::device, "Where to train.", one_of({"auto", "cpu"}))
      .section("files")
      .add("resume", &Small::resume,
           "Goes on from the last checkpoint, if there is one in the folder for results; begins anew where "
           "there is none.")
      .add("data", &Small::data, "The data set: a|b.", metavar("FILE"))
      .refuse("old", false, "It is gone.");
}

TEST(OptionsText, Help) {
  EXPECT_EQ(small_table().help(), R"(usage: small [options] [files]

Trains a small network on images.

  files                       Files to read.

options:
  -h, --help                  Show this help and exit.
  -e, --epochs N              Passes over the training data. [at least 1; default: 10]
  --device {auto,cpu}         Where to train. [default: auto]

files:
  --[no-]resume               Goes on from the last checkpoint, if there is one in the folder for
                              results; begins anew where there is none. [default: off]
  --data FILE                 The data set: a|b.
)");
}

TEST(OptionsText, MarkdownTable) {
  EXPECT_EQ(small_table().markdown_table(), R"(| flag | JSON key | value | default | meaning |
| --- | --- | --- | --- | --- |
| `-e`, `--epochs` | `epochs` | a 64-bit integer, at least 1 | `10` | Passes over the training data. |
| `--device` | `device` | one of auto, cpu | `auto` | Where to train. |
| `--resume` | `resume` | true or false | `off` | Goes on from the last checkpoint, if there is one in the folder for results; begins anew where there is none. |
| `--data` | `data` | a string |  | The data set: a\|b. |
)");
}

}  // namespace
}  // namespace lockstep
