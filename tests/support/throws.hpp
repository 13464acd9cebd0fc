#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <string_view>

namespace lockstep::testing {

inline ::testing::AssertionResult contains_all(const std::string& text,
                                               std::initializer_list<std::string_view> parts) {
  for (const auto part : parts) {
    if (text.find(part) != std::string::npos) continue;
    return ::testing::AssertionFailure() << "'" << part << "' is not in the text: " << text;
  }
  return ::testing::AssertionSuccess();
}

/// The text of the Failure that `action` throws; a failure of the test when it throws nothing.
template <class Failure, class Action>
std::string message_of(Action&& action) {
  try {
    action();
  } catch (const Failure& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace lockstep::testing

/// Expects that `statement` throws `Type`, and that the text contains every part given after it.
#define EXPECT_THROWS(statement, Type, ...)                                                \
  try {                                                                                    \
    static_cast<void>(statement);                                                          \
    ADD_FAILURE() << #statement << " threw nothing, expected " << #Type;                   \
  } catch (const Type& error) {                                                            \
    EXPECT_TRUE(::lockstep::testing::contains_all(error.what(), {__VA_ARGS__}));           \
  } catch (const std::exception& error) {                                                  \
    ADD_FAILURE() << #statement << " threw another type than " #Type ": " << error.what(); \
  }                                                                                        \
  static_assert(true, "take the semicolon")
