#include <algorithm>
#include <utility>

#include "core/option_values.hpp"
#include "lockstep/core/option_spec.hpp"

namespace lockstep {
namespace {

OptionSetting number_check(std::string expected, std::function<bool(long double)> accepts) {
  OptionCheck check{std::move(expected), [accepts = std::move(accepts)](const OptionValue& value) {
                      const auto* number = std::get_if<long double>(&value);
                      return number != nullptr && accepts(*number);
                    }};
  return [check = std::move(check)](OptionSpec& spec) { spec.checks.push_back(check); };
}

}  // namespace

std::string OptionSpec::key() const {
  std::string result = name;
  std::replace(result.begin(), result.end(), '-', '_');
  return result;
}

bool OptionSpec::is_switch() const { return refusal.empty() ? boolean : !refused_takes_value; }

OptionSetting at_least(double bound) {
  return number_check("at least " + number_text(bound), [bound](long double x) { return x >= bound; });
}

OptionSetting at_most(double bound) {
  return number_check("at most " + number_text(bound), [bound](long double x) { return x <= bound; });
}

OptionSetting more_than(double bound) {
  return number_check("more than " + number_text(bound), [bound](long double x) { return x > bound; });
}

OptionSetting less_than(double bound) {
  return number_check("less than " + number_text(bound), [bound](long double x) { return x < bound; });
}

OptionSetting between(double low, double high) {
  return number_check("from " + number_text(low) + " to " + number_text(high),
                      [low, high](long double x) { return x >= low && x <= high; });
}

OptionSetting one_of(std::vector<std::string> choices) {
  return [choices = std::move(choices)](OptionSpec& spec) { spec.choices = choices; };
}

OptionSetting not_empty() {
  return [](OptionSpec& spec) {
    matching("a text that is not empty", [](const std::string& text) { return !text.empty(); })(spec);
    spec.checks.back().in_help = false;
  };
}

OptionSetting matching(std::string expected, std::function<bool(const std::string&)> accepts) {
  OptionCheck check{std::move(expected), [accepts = std::move(accepts)](const OptionValue& value) {
                      const auto* text = std::get_if<std::string>(&value);
                      return text != nullptr && accepts(*text);
                    }};
  return [check = std::move(check)](OptionSpec& spec) { spec.checks.push_back(check); };
}

OptionSetting or_non_finite() {
  return [](OptionSpec& spec) { spec.non_finite = true; };
}

OptionSetting short_name(char letter) {
  return [letter](OptionSpec& spec) { spec.short_name = letter; };
}

OptionSetting metavar(std::string word) {
  return [word = std::move(word)](OptionSpec& spec) { spec.metavar = word; };
}

OptionSetting not_from_environment() {
  return [](OptionSpec& spec) { spec.from_environment = false; };
}

OptionSetting full_name_only() {
  return [](OptionSpec& spec) { spec.by_prefix = false; };
}

}  // namespace lockstep
