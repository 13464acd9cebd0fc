#include "failure/readable_stack.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <sstream>

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

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

/// "file(function+0x1f)[0x7f...]" as "function+0x1f in file", or "file+0x1f" where the function has no name;
/// other lines as they are.
std::string readable_frame(const std::string& line) {
  const auto open = line.find('(');
  const auto plus = line.find('+', open);
  const auto close = line.find(')', plus);
  if (close == std::string::npos || line.compare(close, 4, ")[0x") != 0) return line;
  const std::string file = base_name(line.substr(0, open));
  const std::string offset = line.substr(plus, close - plus);
  const std::string name = line.substr(open + 1, plus - open - 1);
  return "  " + (name.empty() ? file + offset : demangled(name) + offset + " in " + file);
}

std::string without_controls(const std::string& text) {
  std::string result;
  std::copy_if(text.begin(), text.end(), std::back_inserter(result), is_harmless);
  return result;
}

}  // namespace

std::string readable_stack(const std::string& text) {
  std::istringstream lines(without_controls(text));
  std::string result;
  for (std::string line; std::getline(lines, line);) result += readable_frame(line) + "\n";
  return result;
}

}  // namespace lockstep::launch
