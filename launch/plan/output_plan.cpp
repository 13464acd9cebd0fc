#include "plan/output_plan.hpp"

#include <charconv>
#include <optional>

#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

/// Bits of torchrun's stream numbers: 1 output, 2 errors, 3 both.
constexpr int kOut = 1;
constexpr int kErr = 2;

std::optional<int> number_up_to(std::string_view text, int highest) {
  int number = 0;
  const auto [stop, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || stop != text.data() + text.size() || number < 0 || number > highest) {
    return std::nullopt;
  }
  return number;
}

std::vector<std::string_view> parts(std::string_view text) {
  std::vector<std::string_view> result;
  for (std::size_t comma = 0; comma != std::string_view::npos;) {
    comma = text.find(',');
    result.push_back(text.substr(0, comma));
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
  }
  return result;
}

/// "3", or "0:1,2:3": the streams of each rank.
std::vector<int> streams_of(const std::string& flag, const std::string& text, int ranks) {
  if (const auto all = number_up_to(text, kOut | kErr))
    return std::vector<int>(static_cast<std::size_t>(ranks), *all);
  std::vector<int> result(static_cast<std::size_t>(ranks), 0);
  for (const auto part : parts(text)) {
    const auto colon = std::min(part.find(':'), part.size());
    const auto rank = number_up_to(part.substr(0, colon), ranks - 1);
    const auto streams = number_up_to(part.substr(std::min(colon + 1, part.size())), kOut | kErr);
    if (!rank || !streams) {
      throw UsageError(flag + " '" + text +
                       "': expected 0 (nothing), 1 (output), 2 (errors) or 3 (both), or such a number "
                       "for single ranks as in 0:1,1:3, with local ranks below " +
                       std::to_string(ranks) + ".");
    }
    result[static_cast<std::size_t>(*rank)] = *streams;
  }
  return result;
}

std::vector<bool> shown_ranks(const std::string& text, int ranks) {
  std::vector<bool> result(static_cast<std::size_t>(ranks), text.empty());
  if (text.empty()) return result;
  for (const auto part : parts(text)) {
    const auto rank = number_up_to(part, ranks - 1);
    if (!rank) {
      throw UsageError("--local-ranks-filter '" + text + "': expected local ranks below " +
                       std::to_string(ranks) + " with commas between them, as in 0,1.");
    }
    result[static_cast<std::size_t>(*rank)] = true;
  }
  return result;
}

Sink sink_of(bool redirected, bool teed, bool shown, bool logged) {
  if (teed && shown) return Sink::relay;
  if (redirected || (teed && logged)) return Sink::file;
  return shown ? Sink::console : Sink::nothing;
}

}  // namespace

std::vector<RankOutput> plan_output(const RunOptions& options, int ranks) {
  const auto redirects = streams_of("--redirects", options.redirects, ranks);
  const auto tee = streams_of("--tee", options.tee, ranks);
  const auto shown = shown_ranks(options.local_ranks_filter, ranks);
  const bool logged = options.log_dir.has_value();
  std::vector<RankOutput> result;
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const auto sink = [&](int bit) { return sink_of(redirects[i] & bit, tee[i] & bit, shown[i], logged); };
    result.push_back({sink(kOut), sink(kErr)});
    if (!logged && redirects[i] != 0) {
      throw UsageError("--redirects needs --log-dir: name the folder that the files go to.");
    }
  }
  return result;
}

}  // namespace lockstep::launch
