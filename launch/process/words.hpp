#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::launch {

/// How words are made, for programs and for people. All *Local*.

/// A name and its value.
using Macro = std::pair<std::string, std::string>;

/// The text with each `${name}` and `$name` of the macros replaced. Other names stay, and `$$` stays two
/// signs.
std::string substituted(const std::string& text, const std::vector<Macro>& macros);

/// A word as a shell would take it.
std::string shell_word(const std::string& word);

/// As many random hexadecimal digits.
std::string random_id(int length);

/// "30 s", "0.25 s".
std::string seconds_text(std::chrono::milliseconds time);

/// "SIGTERM"; "signal 64" for one without a name.
std::string signal_name(int signal_number);

/// The exit status of the launcher for a rank that ended so: its code, or 128 + the number of its signal.
int exit_code_of(int wait_status) noexcept;

/// "exited with code 7", "was killed by SIGSEGV (Segmentation fault)".
std::string describe_exit(int wait_status);

/// Without the characters that would act on a terminal; line ends and tabs stay.
std::string printable(std::string text);

/// Each line behind `indent`, the last one with its line end.
std::string indented(const std::string& text, const std::string& indent = "  ");

/// A stack as ranks write it (glibc's form), for people: C++ names as they stand in the source, files without
/// folders, no addresses; printable.
std::string readable_stack(const std::string& text);

}  // namespace lockstep::launch
