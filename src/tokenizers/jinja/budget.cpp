#include "tokenizers/jinja/budget.hpp"

#include <utility>

namespace lockstep::jinja {

void fail(std::string message) { throw Failure{std::move(message)}; }

void Budget::fail_steps() {
  fail("it takes more steps than ChatTemplateLimits::steps allows: is there a loop that does not end?");
}

void Budget::fail_bytes() {
  fail("it makes more bytes of text and lists than ChatTemplateLimits::bytes allows.");
}

void Text::add(std::size_t count, std::string_view more) {
  if (more.empty() || count == 0) return;
  if (count > std::numeric_limits<std::uint64_t>::max() / more.size()) budget_.make(~std::uint64_t{0});
  budget_.make(count * more.size());
  for (std::size_t i = 0; i < count; ++i) text_ += more;
}

}  // namespace lockstep::jinja
