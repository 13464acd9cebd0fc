#include "core/option_spelling.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "core/option_values.hpp"
#include "core/suggestion.hpp"
#include "core/text.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

/// "-3" and "-.5" are values, not flags.
bool looks_like_flag(std::string_view word) {
  if (word.size() < 2 || word[0] != '-') return false;
  const std::size_t digit = word.size() > 2 && word[1] == '.' ? 2 : 1;
  return std::isdigit(static_cast<unsigned char>(word[digit])) == 0;
}

/// What cxxopts does not know of torchrun's grammar (and of Python's argparse) is rewritten here, one word of
/// the user after the other:
///
///     --learning_rate 1   underscores                  --learning-rate 1
///     --learn=1           a unique prefix              --learning-rate=1
///     -rw=5               letters in one word          -r -w 5
///     --resume True       a truth after a switch       --resume=True
///     --nproc 2 prog -x   the first positional ends    --nproc-per-node 2 -- prog -x
///                         the flags
///
/// To find the first positional, and to refuse `--data --resume`, it has to know which flags take a value; it
/// does not interpret the value. Which option a word sets, and to what, is the library's to say.
class Speller {
 public:
  Speller(const OptionSet& set, const std::vector<std::string>& given)
      : set_(set), word_(given.begin()), end_(given.end()) {}

  std::vector<std::string> spell_out() {
    std::vector<std::string> positional;
    for (; word_ != end_ && !asks_for_help_; ++word_) {
      if (*word_ == "--") {
        ++word_;
        break;
      }
      if (word_->starts_with("--")) {
        spell_name(std::string_view(*word_).substr(2));
      } else if (looks_like_flag(*word_)) {
        spell_letters(std::string_view(*word_).substr(1));
      } else if (set_.grammar().stop_at_first_positional) {
        break;
      } else {
        positional.push_back(*word_);
      }
    }
    if (asks_for_help_) return std::move(spelled_);
    // Behind "--", also "-3" is an argument.
    spelled_.emplace_back("--");
    spelled_.insert(spelled_.end(), positional.begin(), positional.end());
    spelled_.insert(spelled_.end(), word_, end_);
    return std::move(spelled_);
  }

 private:
  void spell_name(std::string_view body) {
    const auto equals = std::min(body.find('='), body.size());
    std::string name(body.substr(0, equals));
    std::ranges::replace(name, '_', '-');
    const std::string_view value = body.substr(equals);
    if (find_negated_switch(set_, name) != nullptr) {
      if (!value.empty())
        throw UsageError(fmt::format("--{} takes no value, got '{}'.", name, value.substr(1)));
      spelled_.push_back("--" + name);
      return;
    }
    const OptionSpec& option = resolve(name);
    const std::string flag = "--" + option.name;
    spelled_.push_back(flag + std::string(value));
    if (value.empty() && option.is_switch()) spell_truth(option);
    if (value.empty() && !option.is_switch()) spelled_.push_back(next_value(option, flag));
    asks_for_help_ = option.name == "help";
  }

  void spell_letters(std::string_view letters) {
    while (!letters.empty() && !asks_for_help_) {
      const std::string flag{'-', letters.front()};
      const auto option = std::ranges::find(set_.specs(), letters.front(), &OptionSpec::short_name);
      if (option == set_.specs().end()) refuse_unknown(flag, std::string(letters));
      letters.remove_prefix(1);
      spelled_.push_back(flag);
      asks_for_help_ = option->name == "help";
      if (option->is_switch()) continue;
      if (letters.empty())
        spelled_.push_back(next_value(*option, flag));
      else
        spelled_.emplace_back(letters.substr(letters.front() == '=' ? 1 : 0));
      return;
    }
  }

  /// Where no word stands alone, one after a switch is its value, as for Python's parsers: --bf16 True.
  void spell_truth(const OptionSpec& option) {
    if (!option.field || !value_follows()) return;
    if (set_.arguments().empty() && !set_.grammar().stop_at_first_positional)
      spelled_.back() += "=" + *++word_;
    else
      refuse_truth_after(option);
  }

  /// `--standalone true ./trainer` would run the program true, which exits at once with 0.
  void refuse_truth_after(const OptionSpec& option) const {
    const std::string word = to_lower_case(*(word_ + 1));
    if (word_ + 2 == end_ || (word != "true" && word != "false")) return;
    throw UsageError(fmt::format("--{0} takes no value, got '{1}': leave '{1}' out; --no-{0} turns it off.",
                                 option.name, *(word_ + 1)));
  }

  bool value_follows() const { return word_ + 1 != end_ && !looks_like_flag(*(word_ + 1)); }

  const std::string& next_value(const OptionSpec& option, const std::string& flag) {
    if (value_follows()) return *++word_;
    const auto next = word_ + 1;
    const std::string what_follows =
        next == end_ ? "nothing follows it."
                     : fmt::format("'{0}' follows it. Write a value that begins with '-' as --{1}={0}.",
                                   *next, option.name);
    throw UsageError(fmt::format("{} needs a value ({}), but {}", flag, expected_text(option), what_follows));
  }

  const OptionSpec& resolve(const std::string& name) const {
    if (const auto* spec = set_.find(name)) return *spec;
    std::vector<const OptionSpec*> candidates;
    std::vector<std::string> flags;
    for (const auto& spec : set_.specs()) {
      if (!set_.grammar().unique_prefixes || !spec.by_prefix || !spec.name.starts_with(name)) continue;
      candidates.push_back(&spec);
      flags.push_back("--" + spec.name);
    }
    if (candidates.empty()) refuse_unknown("--" + name, name);
    if (candidates.size() == 1) return *candidates.front();
    throw UsageError(fmt::format("--{} could be any of {}: write the one that is meant in full.", name,
                                 fmt::join(flags, ", ")));
  }

  [[noreturn]] void refuse_unknown(const std::string& flag, const std::string& name) const {
    std::vector<std::string> names;
    for (const auto& spec : set_.specs()) {
      names.push_back(spec.name);
      if (find_negated_switch(set_, "no-" + spec.name) != nullptr) names.push_back("no-" + spec.name);
    }
    const bool before_a_program =
        set_.grammar().stop_at_first_positional && !std::all_of(word_, end_, looks_like_flag);
    throw UsageError(fmt::format("unknown flag {}{}. {}", flag, did_you_mean(name, names, "--"),
                                 before_a_program
                                     ? "Flags of the program itself come after its name; see --help."
                                     : "See --help for all flags."));
  }

  const OptionSet& set_;
  /// The current word.
  std::vector<std::string>::const_iterator word_;
  std::vector<std::string>::const_iterator end_;
  std::vector<std::string> spelled_;
  bool asks_for_help_ = false;
};

}  // namespace

const OptionSpec* find_negated_switch(const OptionSet& set, const std::string& name) {
  if (!name.starts_with("no-") || set.find(name) != nullptr) return nullptr;
  const OptionSpec* option = set.find(name.substr(3));
  return option != nullptr && option->is_switch() && option->field ? option : nullptr;
}

std::vector<std::string> spell_out(const OptionSet& set, const std::vector<std::string>& words) {
  return Speller(set, words).spell_out();
}

}  // namespace lockstep
