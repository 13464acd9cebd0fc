#include "datasets/stream/row_pass.hpp"

#include <fmt/core.h>

#include "lockstep/core/error.hpp"

namespace lockstep::stream {

std::int64_t RowPass::skip(std::int64_t count) {
  std::int64_t done = 0;
  while (done < count && next()) ++done;
  return done;
}

std::int64_t number_in(const Json& state, const char* name, std::int64_t most) {
  const auto number = state.at(name).get<std::int64_t>();
  if (number >= 0 && number <= most) return number;
  throw UsageError(fmt::format(
      "the state of a stream is damaged: its {} is {}, but can be 0 to {} only. Restart the epoch.", name,
      number, most));
}

}  // namespace lockstep::stream
