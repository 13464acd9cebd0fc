#include "tokenizers/jinja/filters.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

namespace lockstep::jinja {
namespace {

constexpr std::array<std::string_view, 9> kUnsupportedFilters = {"filesizeformat", "pprint",   "random",
                                                                 "striptags",      "truncate", "urlencode",
                                                                 "urlize",         "wordwrap", "xmlattr"};

}  // namespace

Value apply_filter(Budget& budget, const std::string& name, const Value& value, const Arguments& arguments) {
  budget.step();
  for (const auto* filters : {&text_filters(), &list_filters()}) {
    const auto found = filters->find(name);
    if (found != filters->end())
      return found->second({.budget = budget, .name = name, .value = value, .arguments = arguments});
  }
  fail(unknown_filter(name) + ".");
}

std::string unknown_filter(std::string_view name) {
  const bool known =
      std::find(kUnsupportedFilters.begin(), kUnsupportedFilters.end(), name) != kUnsupportedFilters.end();
  return fmt::format("the filter '{}' {}", name.substr(0, 60),
                     known ? "is not supported in chat templates" : "does not exist");
}

bool has_filter(std::string_view name) {
  return text_filters().contains(name) || list_filters().contains(name);
}

}  // namespace lockstep::jinja
