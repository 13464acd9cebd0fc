#include "watch/demangle.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

namespace lockstep::launch {
namespace {

/// The name in the source, or what was given where it is none of C++.
std::string demangled(const std::string& name) {
  const std::unique_ptr<char, void (*)(void*)> result(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, nullptr), std::free);
  return result ? result.get() : name;
}

bool is_harmless(char letter) {
  const auto code = static_cast<unsigned char>(letter);
  return (code >= ' ' && code != 0x7f) || letter == '\n' || letter == '\t';
}

}  // namespace

std::string readable_stack(const std::string& text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    if (text.compare(at, 3, "(_Z") == 0) {
      const auto end = std::min(text.find_first_of("+)\n", at), text.size());
      result += "(" + demangled(text.substr(at + 1, end - at - 1));
      at = end;
    } else {
      if (is_harmless(text[at])) result += text[at];
      ++at;
    }
  }
  return result;
}

}  // namespace lockstep::launch
