#include "core/text.hpp"

#include <gtest/gtest.h>

#include "core/time.hpp"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

TEST(Text, IsTrimmedAndSplit) {
  EXPECT_EQ(trim_blanks(" \t a b\n"), "a b");
  EXPECT_EQ(trim_blanks(" \n"), "");
  EXPECT_EQ(split_at_commas("a,,b "), (std::vector<std::string_view>{"a", "", "b "}));
  EXPECT_EQ(split_at_commas(""), std::vector<std::string_view>{""});
}

TEST(Text, ChangesTheCaseOfAsciiLettersOnly) {
  EXPECT_EQ(to_lower_case("\u00c4Bz-[@"), "\u00c4bz-[@");
  EXPECT_EQ(to_upper_case("\u00e4Bz_{`"), "\u00e4BZ_{`");
}

TEST(Text, NumbersAreParsedWholly) {
  EXPECT_EQ(parse_number<int>("-7"), -7);
  EXPECT_EQ(parse_number<int>("7 "), std::nullopt);
  EXPECT_EQ(parse_number<std::uint8_t>("256"), std::nullopt);
  EXPECT_EQ(parse_whole_number("65535", 1, 65535), 65535);
  EXPECT_EQ(parse_whole_number("65536", 1, 65535), std::nullopt);
  EXPECT_EQ(parse_whole_number("-1"), std::nullopt);
  EXPECT_EQ(describe_whole_numbers(1, 65535), "an integer from 1 to 65535");
  EXPECT_EQ(describe_whole_numbers(0, std::numeric_limits<int>::max()), "an integer from 0");
}

TEST(Text, ListsAreWrittenForPeople) {
  EXPECT_EQ(join_with_or({"ls", "verify", "merge"}), "ls, verify or merge");
  EXPECT_EQ(join_with_or({"comm"}), "comm");
  EXPECT_EQ(quote_names(std::vector<std::string>()), "none");
  const std::vector<std::string> names{"a", "b", "c"};
  EXPECT_EQ(quote_names(names), "'a', 'b', 'c'");
  EXPECT_EQ(quote_names(names, 2), "'a', 'b', ...");
  EXPECT_EQ(list_ranks({2}), "rank 2");
  EXPECT_EQ(list_ranks({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17}),
            "ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 and 1 more");
  EXPECT_EQ(indent_lines("a\nb", "> "), "> a\n> b\n");
  EXPECT_EQ(format_hex(std::string_view("\x00\x9f\xff", 3)), "009fff");
}

TEST(Text, IsShortenedBetweenCharacters) {
  EXPECT_EQ(shorten_text("abc", 3), "abc");
  EXPECT_EQ(shorten_text("abcd", 3), "abc ...");
  EXPECT_EQ(shorten_text("a\xc3\xa4\xc3\xa4", 2), "a ...");
  EXPECT_EQ(remove_control_characters("a\x1b[0m\r\tb\n"), "a[0m\tb\n");
}

TEST(Time, IsWrittenForPeople) {
  EXPECT_EQ(format_seconds(milliseconds(30'000)), "30 s");
  EXPECT_EQ(format_seconds(milliseconds(250)), "0.25 s");
  EXPECT_EQ(format_whole_seconds(milliseconds(29'999)), "29 s");
  EXPECT_EQ(format_duration(milliseconds(250)), "250 ms");
  EXPECT_EQ(format_duration(milliseconds(1500)), "1.5 s");
  EXPECT_EQ(format_duration(milliseconds(31'200)), "31 s");
  EXPECT_EQ(format_clock(125), "02:05");
  EXPECT_EQ(format_clock(3725.9), "1:02:05");
  EXPECT_EQ(format_clock(-1), "?");
  EXPECT_EQ(format_time(0, "%Y-%m-%d %H:%M:%S", gmtime_r), "1970-01-01 00:00:00");
}

}  // namespace
}  // namespace lockstep
