#include "core/cluster/hostlist.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

std::string expanded(std::string_view list) {
  std::string result;
  for (const auto& host : expand_hostlist(list)) result += (result.empty() ? "" : " ") + host;
  return result;
}

std::string expanded_or_invalid(std::string_view list) {
  try {
    return expanded(list);
  } catch (const UsageError&) {
    return "invalid";
  }
}

std::string refusal(std::string_view list) {
  try {
    return "accepted as " + expanded(list);
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(Hostlist, SaysWhatSlurmSays) {
  std::ifstream file(LOCKSTEP_HOSTLISTS);
  int lists = 0;
  for (std::string line; std::getline(file, line); ++lists) {
    const auto tab = line.find('\t');
    ASSERT_NE(tab, std::string::npos) << line;
    EXPECT_EQ(expanded_or_invalid(line.substr(0, tab)), line.substr(tab + 1)) << line.substr(0, tab);
  }
  EXPECT_GE(lists, 300);
}

TEST(Hostlist, TextAfterTheLastBracketIsAccepted) {
  EXPECT_EQ(expanded("m[08-10]-ib"), "m08-ib m09-ib m10-ib");
  EXPECT_EQ(expanded("r[1-2]n[1-2].local,x"), "r1n1.local r1n2.local r2n1.local r2n2.local x");
}

TEST(Hostlist, AnEmptyListHasNoHosts) {
  EXPECT_EQ(expanded(""), "");
  EXPECT_EQ(expanded(" , "), "");
}

TEST(Hostlist, TheLimitsAreSlurmsAndOurs) {
  EXPECT_EQ(expand_hostlist("n[0-65535]").size(), 65'536U);
  EXPECT_NE(refusal("n[0-65536]").find("more than 65536"), std::string::npos);
  EXPECT_EQ(expand_hostlist("a[1-512]b[1-512]").size(), kMostHosts);
  EXPECT_NE(refusal("a[1-512]b[1-512],c").find("more than 262144 hosts in all"), std::string::npos);
  EXPECT_NE(refusal("a[1-65536]b[1-65536]c[1-65536]d[1-65536]e[1-65536]").find("hosts in all"),
            std::string::npos);
}

TEST(Hostlist, WhatSlurmGuessesAtIsRefused) {
  EXPECT_NE(refusal("n[1-2").find("a '[' is not closed"), std::string::npos);
  EXPECT_NE(refusal("n1]").find("a ']' has no '['"), std::string::npos);
  EXPECT_NE(refusal("n[1-]").find("'1-' is neither a number nor a range"), std::string::npos);
  EXPECT_NE(refusal("n[ 1-2]").find("is neither a number"), std::string::npos);
  EXPECT_NE(refusal("n[18446744073709551614-18446744073709551615]").find("is neither a number"),
            std::string::npos);
  EXPECT_NE(refusal("n[" + std::string(100, '0') + "1]").find("is neither a number"), std::string::npos);
}

TEST(Hostlist, TheMessageHasTheListAndTheReason) {
  EXPECT_EQ(refusal("n[3-1]"),
            "host list 'n[3-1]': the range '3-1' runs backwards. Expected names and ranges as in "
            "n[1-3,07],login, as Slurm writes them.");
}

}  // namespace
}  // namespace lockstep
