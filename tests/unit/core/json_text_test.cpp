#include "core/json_text.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Utf8Text, WritesForeignBytesAsPythonsBackslashreplace) {
  EXPECT_EQ(utf8_text("caf\xc3\xa9 \xf0\x9f\x98\x80"), "caf\xc3\xa9 \xf0\x9f\x98\x80");
  EXPECT_EQ(utf8_text("caf\xe9.csv\xff"), "caf\\xe9.csv\\xff");
  EXPECT_EQ(utf8_text("\xc3"), "\\xc3") << "half of a character";
  EXPECT_EQ(utf8_text(""), "");
}

TEST(JsonText, HoldsAnyTextsAndNames) {
  const nlohmann::json plain{{"a", {1, 2.5, nullptr}}};
  EXPECT_EQ(json_text(plain), plain.dump());
  EXPECT_EQ(json_text(plain, 2), plain.dump(2));
  const nlohmann::ordered_json foreign{{"z\xe9", {"\xe8", {{"in\xff", true}}}}, {"a", "b"}};
  EXPECT_EQ(json_text(foreign), R"({"z\\xe9":["\\xe8",{"in\\xff":true}],"a":"b"})");
  EXPECT_EQ(nlohmann::json::parse(json_text(foreign))["z\\xe9"][0], "\\xe8");
}

}  // namespace
}  // namespace lockstep
