#pragma once

#include <fmt/core.h>

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::launch {

/// Texts about processes and ranks. All *Local*. See also core/text.hpp and core/time.hpp.

/// An error with a formatted message, to be thrown.
template <class Failure, class... Values>
Failure formatted(fmt::format_string<Values...> text, Values&&... values) {
  return Failure(fmt::format(text, std::forward<Values>(values)...));
}

/// Replaces each `${name}` and `$name` of the macros by its value. Other names are kept, and so is `$$`.
std::string substitute_macros(std::string_view text, const std::map<std::string, std::string>& macros);

/// Random hexadecimal digits, an even number.
std::string random_id(int length);

/// "SIGTERM"; "signal 64" for one without a name.
std::string signal_name(int signal_number);

/// The launcher's exit status for a rank that ended with this wait status: its code, or 128 + its signal.
int exit_code_of(int wait_status) noexcept;

/// "exited with code 7", "was killed by SIGSEGV (Segmentation fault)".
std::string describe_exit(int wait_status);

/// "rank 0", "ranks 0, 2-31".
std::string rank_list(const std::vector<int>& ranks);

/// Makes a stack in glibc's format readable: demangled C++ names, files without folders, no addresses, only
/// printable characters.
std::string readable_stack(const std::string& text);

}  // namespace lockstep::launch
