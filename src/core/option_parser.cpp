#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>

#include "core/option_values.hpp"
#include "core/suggestion.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/options.hpp"

namespace lockstep {
namespace {

std::string with_hyphens(std::string_view name) {
  std::string result(name);
  std::replace(result.begin(), result.end(), '_', '-');
  return result;
}

std::string environment_name(const OptionGrammar& grammar, const OptionSpec& spec) {
  std::string result = spec.key();
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return std::toupper(c); });
  return grammar.environment_prefix + result;
}

/// "-3" and "-.5" are values, not flags.
bool looks_like_number(std::string_view word) {
  const std::size_t digit = word.size() > 2 && word[1] == '.' ? 2 : 1;
  return word.size() > digit && word[0] == '-' && std::isdigit(static_cast<unsigned char>(word[digit])) != 0;
}

bool looks_like_flag(std::string_view word) {
  return word.size() > 1 && word[0] == '-' && !looks_like_number(word);
}

/// One pass over a command line.
class Parser {
 public:
  Parser(const OptionSet& set, void* options, const std::vector<std::string>& words)
      : set_(set), options_(options), words_(words) {}

  void read_environment(const Environment& environment);
  void read_words();
  void finish();

  ParseReport report;

 private:
  struct Match {
    const OptionSpec* spec = nullptr;
    bool negated = false;
  };

  bool more() const { return at_ < words_.size() && !report.help; }
  void read_word(const std::string& word);
  void read_long(std::string_view body);
  void read_short(std::string_view letters);
  void read_positional(const std::string& word);
  void take_rest();
  Match resolve(const std::string& name) const;
  Match resolve_prefix(const std::string& name) const;
  [[noreturn]] void unknown(const std::string& flag, const std::string& name) const;
  void apply(const Match& match, std::optional<std::string> value, const std::string& place);
  std::string next_value(const OptionSpec& spec, const std::string& place);
  void assign(const OptionSpec& spec, const std::string& value, const std::string& place);

  const OptionSet& set_;
  void* options_;
  const std::vector<std::string>& words_;
  std::size_t at_ = 0;
  std::vector<std::string> rest_;
};

void Parser::read_environment(const Environment& environment) {
  if (set_.grammar().environment_prefix.empty()) return;
  for (const auto& spec : set_.specs()) {
    const std::string variable = environment_name(set_.grammar(), spec);
    const auto value = find_variable(environment, variable);
    if (!value || !spec.from_environment) continue;
    // Somebody who sets a refused switch to 0, or a refused option to nothing, asks for nothing.
    if (!spec.refusal.empty() && (value->empty() || (spec.is_switch() && *value == "0"))) continue;
    assign(spec, *value, variable);
  }
}

void Parser::read_words() {
  while (more()) read_word(words_[at_++]);
}

void Parser::read_word(const std::string& word) {
  if (word == "--") {
    take_rest();
  } else if (word.starts_with("--")) {
    read_long(std::string_view(word).substr(2));
  } else if (looks_like_flag(word)) {
    read_short(std::string_view(word).substr(1));
  } else {
    read_positional(word);
  }
}

void Parser::read_positional(const std::string& word) {
  if (set_.rest() == nullptr) {
    throw UsageError("unexpected argument '" + word + "': " + set_.program() +
                     " takes flags only; see --help. A value with blanks needs quotes.");
  }
  if (set_.grammar().stop_at_first_positional) {
    --at_;
    take_rest();
  } else {
    rest_.push_back(word);
  }
}

void Parser::take_rest() {
  const auto first = words_.begin() + static_cast<std::ptrdiff_t>(at_);
  if (set_.rest() == nullptr && first != words_.end()) {
    throw UsageError("unexpected argument '" + *first + "' after '--': " + set_.program() +
                     " takes flags only.");
  }
  rest_.insert(rest_.end(), first, words_.end());
  at_ = words_.size();
}

void Parser::read_long(std::string_view body) {
  const auto equals = body.find('=');
  const std::string name = with_hyphens(body.substr(0, equals));
  const Match match = resolve(name);
  std::optional<std::string> value;
  if (equals != std::string_view::npos) value = std::string(body.substr(equals + 1));
  if (match.spec == nullptr) {
    report.help = true;
  } else {
    apply(match, std::move(value), (match.negated ? "--no-" : "--") + match.spec->name);
  }
}

void Parser::read_short(std::string_view letters) {
  while (!letters.empty()) {
    const char letter = letters.front();
    letters.remove_prefix(1);
    if (letter == 'h') {
      report.help = true;
      return;
    }
    const auto& specs = set_.specs();
    const auto found = std::find_if(specs.begin(), specs.end(),
                                    [&](const OptionSpec& spec) { return spec.short_name == letter; });
    const std::string flag = std::string("-") + letter;
    if (found == specs.end()) unknown(flag, std::string(1, letter) + std::string(letters));
    std::optional<std::string> value;
    if (!found->is_switch() && !letters.empty()) {
      value = std::string(letters.front() == '=' ? letters.substr(1) : letters);
      letters = {};
    }
    apply({&*found, false}, std::move(value), flag);
  }
}

Parser::Match Parser::resolve(const std::string& name) const {
  if (name == "help") return {};
  if (const auto* spec = set_.find(name)) return {spec, false};
  if (name.starts_with("no-")) {
    const auto* spec = set_.find(name.substr(3));
    if (spec != nullptr && spec->is_switch() && spec->refusal.empty()) return {spec, true};
  }
  if (set_.grammar().unique_prefixes) return resolve_prefix(name);
  unknown("--" + name, name);
}

Parser::Match Parser::resolve_prefix(const std::string& name) const {
  std::vector<const OptionSpec*> found;
  for (const auto& spec : set_.specs()) {
    if (spec.by_prefix && spec.name.starts_with(name)) found.push_back(&spec);
  }
  const bool is_help = std::string_view("help").starts_with(name);
  if (found.size() + (is_help ? 1 : 0) == 0) unknown("--" + name, name);
  if (is_help && found.empty()) return {};
  if (found.size() == 1 && !is_help) return {found.front(), false};
  std::string names;
  for (const auto* spec : found) names += (names.empty() ? "--" : ", --") + spec->name;
  throw UsageError("--" + name + " could be any of " + names + ": write the one that is meant in full.");
}

void Parser::unknown(const std::string& flag, const std::string& name) const {
  std::vector<std::string> names{"help"};
  for (const auto& spec : set_.specs()) {
    names.push_back(spec.name);
    if (spec.is_switch()) names.push_back("no-" + spec.name);
  }
  const std::string advice = set_.grammar().stop_at_first_positional
                                 ? "Flags of the program itself come after its name; see --help."
                                 : "See --help for all flags.";
  throw UsageError("unknown flag " + flag + did_you_mean(name, names, "--") + ". " + advice);
}

void Parser::apply(const Match& match, std::optional<std::string> value, const std::string& place) {
  const OptionSpec& spec = *match.spec;
  if (match.negated) {
    if (value) throw UsageError(place + " takes no value, but '" + *value + "' came.");
    value = "false";
  } else if (!value) {
    value = spec.is_switch() ? "true" : next_value(spec, place);
  }
  assign(spec, *value, place);
}

std::string Parser::next_value(const OptionSpec& spec, const std::string& place) {
  const bool ended = at_ >= words_.size();
  if (!ended && !looks_like_flag(words_[at_])) return words_[at_++];
  const std::string expected = spec.field ? expected_text(spec, spec.field(options_)) : "a value";
  throw UsageError(place + " needs a value (" + expected + "), but " +
                   (ended ? "nothing follows it."
                          : "'" + words_[at_] +
                                "' follows it. A value that begins with '-' is "
                                "written --" +
                                spec.name + "=" + words_[at_] + "."));
}

void Parser::assign(const OptionSpec& spec, const std::string& value, const std::string& place) {
  if (!spec.refusal.empty()) throw UsageError(place + " is not supported: " + spec.refusal);
  assign_text(spec, spec.field(options_), value, place);
  report.given[spec.name] = place;
}

void Parser::finish() {
  const auto* rest = set_.rest();
  if (report.help || rest == nullptr) return;
  if (set_.rest_required() && rest_.empty()) {
    throw UsageError("the " + rest->name + " is missing: expected " + set_.program() + " [options] " +
                     rest->name + ". See --help.");
  }
  if (!rest_.empty()) *std::get<std::vector<std::string>*>(rest->field(options_)) = std::move(rest_);
}

void lay_over(const OptionSet& set, void* options, const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (!stream)
    throw UsageError("--" + set.grammar().config_option + " " + file + ": the file cannot be read");
  try {
    set.from_json_text(options, text);
  } catch (const UsageError& error) {
    throw UsageError("--" + set.grammar().config_option + " " + file + ": " + error.what());
  }
}

}  // namespace

ParseReport OptionSet::read(void* options, const std::vector<std::string>& arguments,
                            const Environment& environment) const {
  Parser parser(*this, options, arguments);
  parser.read_environment(environment);
  parser.read_words();
  parser.finish();
  return std::move(parser.report);
}

ParseReport OptionSet::parse(void* options, const std::vector<std::string>& arguments,
                             const Environment& environment) const {
  ParseReport report = read(options, arguments, environment);
  const OptionSpec* config = grammar_.config_option.empty() ? nullptr : find(grammar_.config_option);
  const std::string file = config == nullptr ? "" : value_text(config->field(options)).value_or("");
  if (file.empty() || report.help) return report;
  lay_over(*this, options, file);
  // What the command line says beats the file.
  return read(options, arguments, environment);
}

}  // namespace lockstep
