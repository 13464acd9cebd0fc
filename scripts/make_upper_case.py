"""Writes src/tokenizers/jinja/upper_case.cpp, the upper and title case of characters as Python's str has them:

python3 scripts/make_upper_case.py > src/tokenizers/jinja/upper_case.cpp
"""
import unicodedata

HEAD = f"""// Written by scripts/make_upper_case.py from Unicode {unicodedata.unidata_version}. Change the script, not this file.
#include "tokenizers/jinja/upper_case.hpp"

#include <string>
#include <unordered_map>

namespace lockstep::jinja {{
namespace {{

/// Characters from `first` to `last` in steps, whose upper case is at a distance.
struct UpperRun {{
  char32_t first;
  char32_t last;
  int step;
  int distance;
}};
/// A character whose upper or title case has several characters or is no other's.
struct UpperText {{
  char32_t code;
  std::u32string_view text;
}};

// clang-format off"""

TAIL = """// clang-format on

using Cases = std::unordered_map<char32_t, std::u32string>;

Cases read_cases(bool title) {
  Cases cases;
  for (const auto& run : kUpperRuns) {
    for (auto code = run.first; code <= run.last; code += static_cast<char32_t>(run.step)) {
      cases[code] = static_cast<char32_t>(static_cast<int>(code) + run.distance);
    }
  }
  for (const auto& own : kUpperTexts) cases[own.code] = own.text;
  if (!title) return cases;
  for (const auto& own : kTitleTexts) cases[own.code] = own.text;
  return cases;
}

std::u32string_view look_up(const Cases& cases, char32_t code) {
  const auto found = cases.find(code);
  return found == cases.end() ? std::u32string_view() : std::u32string_view(found->second);
}

}  // namespace

std::u32string_view upper_case_of(char32_t code) {
  static const auto cases = read_cases(false);
  return look_up(cases, code);
}

std::u32string_view title_case_of(char32_t code) {
  static const auto cases = read_cases(true);
  return look_up(cases, code);
}

}  // namespace lockstep::jinja"""


def text(characters):
    return 'U"' + "".join(f"\\U{ord(c):08X}" for c in characters) + '"'


def runs(pairs):
    """(first, last, step, distance) of neighbours at one distance."""
    found = []
    for code, distance in pairs:
        if found and found[-1][3] == distance:
            first, last, step, _ = found[-1]
            if first == last and code - last <= 2 or code - last == step:
                found[-1] = (first, code, code - last, distance)
                continue
        found.append((code, code, 1, distance))
    return found


def print_rows(kind, name, rows):
    print(f"constexpr {kind} {name}[] = {{")
    line = "   "
    for row in rows:
        if len(line) + len(row) > 105:
            print(line)
            line = "   "
        line += f" {row},"
    print(line + "\n};")


codes = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
single = [(c, ord(chr(c).upper()) - c) for c in codes if len(chr(c).upper()) == 1 and chr(c).upper() != chr(c)]
print(HEAD)
print_rows("UpperRun", "kUpperRuns", ["{0x%X,0x%X,%d,%d}" % run for run in runs(single)])
print_rows("UpperText", "kUpperTexts", ["{0x%X,%s}" % (c, text(chr(c).upper())) for c in codes if len(chr(c).upper()) > 1])
print_rows("UpperText", "kTitleTexts", ["{0x%X,%s}" % (c, text(chr(c).title())) for c in codes if chr(c).title() != chr(c).upper()])
print(TAIL)
