#include "process/words.hpp"

#include <cxxabi.h>
#include <fmt/core.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <ranges>
#include <sstream>

namespace lockstep::launch {
namespace {

bool in_name(char letter) { return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_'; }

/// The name behind a '$', and how long it is written, braces included; 0: there is no name.
struct Name {
  std::string_view text;
  std::size_t length = 0;
};

Name name_at(std::string_view after) {
  const bool braced = after.starts_with('{');
  const std::string_view rest = after.substr(braced ? 1 : 0);
  const auto stop = std::find_if_not(rest.begin(), rest.end(), in_name);
  const auto length = static_cast<std::size_t>(stop - rest.begin());
  if (!braced) return {rest.substr(0, length), length};
  const bool closed = stop != rest.end() && *stop == '}';
  return closed ? Name{rest.substr(0, length), length + 2} : Name{};
}

/// The name in the source, or what was given where it is none of C++.
std::string demangled(const std::string& name) {
  const std::unique_ptr<char, void (*)(void*)> result(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, nullptr), std::free);
  return result ? result.get() : name;
}

/// "file(function+0x1f)[0x7f...]" as "function+0x1f in file", or "file+0x1f" where the function has no name;
/// other lines as they are.
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

std::vector<std::string_view> split_list(std::string_view text) {
  std::vector<std::string_view> items;
  for (const auto item : std::views::split(text, ',')) items.emplace_back(item.begin(), item.end());
  return items;
}

std::string_view stripped(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const auto first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::string substituted(const std::string& text, const std::vector<Macro>& macros) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    if (text.compare(at, 2, "$$") == 0) {
      result += "$$";
      at += 2;
      continue;
    }
    const Name name = text[at] == '$' ? name_at(std::string_view(text).substr(at + 1)) : Name{};
    const auto macro = std::find_if(macros.begin(), macros.end(),
                                    [&](const Macro& candidate) { return candidate.first == name.text; });
    const bool known = name.length > 0 && macro != macros.end();
    result += known ? macro->second : std::string(1, text[at]);
    at += known ? name.length + 1 : 1;
  }
  return result;
}

std::string shell_word(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,+@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string result = "'";
  for (const char letter : word) result += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return result + "'";
}

std::string random_id(int length) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::random_device random;
  std::string id;
  for (int i = 0; i < length; ++i) id += kDigits[random() % 16];
  return id;
}

std::string seconds_text(std::chrono::milliseconds time) {
  return fmt::format("{} s", static_cast<double>(time.count()) / 1000.0);
}

std::string time_text(std::time_t time, const char* format,
                      std::tm* (*parts_of)(const std::time_t*, std::tm*)) {
  std::tm parts{};
  if (parts_of(&time, &parts) == nullptr) return "";
  std::array<char, 64> text{};
  return {text.data(), std::strftime(text.data(), text.size(), format, &parts)};
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

std::string printable(std::string text) {
  std::erase_if(text, [](unsigned char c) { return std::iscntrl(c) != 0 && c != '\n' && c != '\t'; });
  return text;
}

std::string shortened(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  const auto is_inside_letter = [&](std::size_t at) { return (text[at] & 0xC0) == 0x80; };
  // A letter has four bytes at most; what has more is no UTF-8.
  for (const std::size_t least = most - std::min<std::size_t>(most, 3);
       most > least && is_inside_letter(most);)
    --most;
  return fmt::format("{} ...", text.substr(0, most));
}

std::string indented(const std::string& text, const std::string& indent) {
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);) result += indent + line + "\n";
  return result;
}

std::string readable_stack(const std::string& text) {
  std::istringstream lines(printable(text));
  std::string result;
  for (std::string line; std::getline(lines, line);) result += readable_frame(line) + "\n";
  return result;
}

}  // namespace lockstep::launch
