#include "process/words.hpp"

#include <cxxabi.h>
#include <sys/wait.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>

#include "core/cpu_set.hpp"
#include "core/text.hpp"
#include "net/sha256.hpp"

namespace lockstep::launch {
namespace {

bool in_name(char letter) { return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_'; }

/// The length of the macro `${name}` or `$name` at the start of `text`; 0: it does not start with it.
std::size_t name_length(std::string_view text, const std::string& name) {
  if (!text.starts_with('$')) return 0;
  if (text.starts_with("${" + name + "}")) return name.size() + 3;
  const std::size_t length = name.size() + 1;
  const bool ends = length >= text.size() || !in_name(text[length]);
  return text.substr(1).starts_with(name) && ends ? length : 0;
}

/// The demangled name, or `name` itself if it is not a C++ name.
std::string demangled(const std::string& name) {
  const std::unique_ptr<char, void (*)(void*)> result(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, nullptr), std::free);
  return result ? result.get() : name;
}

/// Converts "file(function+0x1f)[0x7f...]" to "function+0x1f in file", or to "file+0x1f" if the function has
/// no name; keeps other lines.
std::string readable_frame(const std::string& line) {
  const auto open = line.find('(');
  const auto plus = line.find('+', open);
  const auto close = line.find(')', plus);
  if (close == std::string::npos || line.compare(close, 4, ")[0x") != 0) return line;
  const std::string path = line.substr(0, open);
  const std::string file = path.substr(path.rfind('/') + 1);
  const std::string offset = line.substr(plus, close - plus);
  const std::string name = line.substr(open + 1, plus - open - 1);
  return "  " + (name.empty() ? file + offset : demangled(name) + offset + " in " + file);
}

}  // namespace

std::string substitute_macros(std::string_view text, const std::map<std::string, std::string>& macros) {
  std::string result;
  while (!text.empty()) {
    std::size_t length = text.starts_with("$$") ? 2 : 1;
    std::string_view written = text.substr(0, length);
    for (const auto& [name, value] : macros) {
      if (const auto found = name_length(text, name); found > 0) {
        length = found;
        written = value;
      }
    }
    result += written;
    text.remove_prefix(length);
  }
  return result;
}

std::string random_id(int length) {
  return format_hex(net::random_bytes(static_cast<std::size_t>(length) / 2));
}

std::string signal_name(int signal_number) {
  const char* short_name = sigabbrev_np(signal_number);
  return short_name == nullptr ? fmt::format("signal {}", signal_number) : fmt::format("SIG{}", short_name);
}

int exit_code_of(int wait_status) noexcept {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

std::string describe_exit(int wait_status) {
  if (!WIFSIGNALED(wait_status)) return fmt::format("exited with code {}", WEXITSTATUS(wait_status));
  const int number = WTERMSIG(wait_status);
  return fmt::format("was killed by {} ({})", signal_name(number), strsignal(number));
}

std::string rank_list(const std::vector<int>& ranks) {
  std::string text = cpu_list_text({ranks.begin(), ranks.end()});
  for (auto at = text.find(','); at != std::string::npos; at = text.find(',', at + 2))
    text.insert(at + 1, " ");
  return (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

std::string readable_stack(const std::string& text) {
  std::istringstream lines(remove_control_characters(text));
  std::string result;
  for (std::string line; std::getline(lines, line);) result += readable_frame(line) + "\n";
  return result;
}

}  // namespace lockstep::launch
