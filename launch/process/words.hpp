#pragma once

#include <fmt/core.h>

#include <chrono>
#include <ctime>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep::launch {

/// How words are made, for programs and for people. All *Local*.

/// An error with a formatted text, to be thrown.
template <class Failure, class... Values>
Failure formatted(fmt::format_string<Values...> text, Values&&... values) {
  return Failure(fmt::format(text, std::forward<Values>(values)...));
}

/// The text without the blanks around it.
std::string_view stripped(std::string_view text);

/// The text with each `${name}` and `$name` of the macros (names with values) replaced. Other names stay, and
/// `$$` stays two signs.
std::string substituted(std::string_view text, const std::map<std::string, std::string>& macros);

/// A word as a shell would take it.
std::string shell_word(const std::string& word);

/// As many random hexadecimal digits.
std::string random_id(int length);

/// "30 s", "0.25 s".
std::string seconds_text(std::chrono::milliseconds time);

/// A time in seconds since 1970 as strftime writes it; `parts_of` is gmtime_r or localtime_r. Empty for one
/// that no calendar has.
std::string time_text(std::time_t time, const char* format,
                      std::tm* (*parts_of)(const std::time_t*, std::tm*));

/// "SIGTERM"; "signal 64" for one without a name.
std::string signal_name(int signal_number);

/// The exit status of the launcher for a rank that ended so: its code, or 128 + the number of its signal.
int exit_code_of(int wait_status) noexcept;

/// "exited with code 7", "was killed by SIGSEGV (Segmentation fault)".
std::string describe_exit(int wait_status);

/// Without the characters that would act on a terminal; line ends and tabs stay.
std::string printable(std::string text);

/// At most that many bytes, cut between two letters (UTF-8), with " ..." behind what was cut.
std::string shortened(std::string_view text, std::size_t most);

/// Each line behind `indent`, the last one with its line end.
std::string indented(const std::string& text, const std::string& indent = "  ");

/// A stack as ranks write it (glibc's form), for people: C++ names as they stand in the source, files without
/// folders, no addresses; printable.
std::string readable_stack(const std::string& text);

}  // namespace lockstep::launch
