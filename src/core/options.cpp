#include "lockstep/core/options.hpp"

#include <algorithm>
#include <stdexcept>

#include "core/option_values.hpp"

namespace lockstep {
namespace {

void require_flag_name(const std::string& name) {
  const bool letters = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
  if (name.empty() || name.front() == '-' || !letters || name == "help") {
    throw std::logic_error("option '" + name +
                           "': a name is made of a-z, 0-9 and hyphens, begins with no hyphen and "
                           "is not 'help'");
  }
}

}  // namespace

OptionSet::OptionSet(std::string program, std::string description)
    : program_(std::move(program)), description_(std::move(description)) {}

void OptionSet::add(OptionSpec spec) {
  require_flag_name(spec.name);
  for (const auto& other : specs_) {
    const bool same_letter = spec.short_name != 0 && spec.short_name == other.short_name;
    if (other.name == spec.name || same_letter || spec.short_name == 'h') {
      throw std::logic_error("option '" + spec.name + "': the name or its one-letter alias is taken");
    }
  }
  if (spec.section.empty()) spec.section = section_;
  specs_.push_back(std::move(spec));
}

void OptionSet::set_rest(OptionSpec spec, bool required) {
  rest_ = std::move(spec);
  rest_required_ = required;
}

const OptionSpec* OptionSet::find(std::string_view name) const {
  const auto same = [](char a, char b) { return a == b || (a == '-' && b == '_'); };
  const auto found = std::find_if(specs_.begin(), specs_.end(), [&](const OptionSpec& spec) {
    return std::equal(spec.name.begin(), spec.name.end(), name.begin(), name.end(), same);
  });
  return found == specs_.end() ? nullptr : &*found;
}

void OptionSet::check(void* options) const {
  for (const auto& spec : specs_) {
    if (spec.field) check_value(spec, spec.field(options), "option " + spec.key());
  }
}

}  // namespace lockstep
