#include "config/output_config.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "core/variables.hpp"
#include "lockstep/core/error.hpp"
#include "process/words.hpp"

namespace lockstep::launch {
namespace {

/// Bits of torchrun's stream numbers: 1 output, 2 errors, 3 both.
constexpr int kOut = 1;
constexpr int kErr = 2;

/// "3", or "0:1,2:3": the streams of each rank. A rank that this node does not have is no mistake: one
/// command line may serve nodes with different numbers of ranks.
std::vector<int> streams_of(const std::string& flag, const std::string& text, int ranks) {
  if (const auto all = variables::whole_number(text, 0, kOut | kErr))
    return std::vector<int>(static_cast<std::size_t>(ranks), *all);
  std::vector<int> result(static_cast<std::size_t>(ranks), 0);
  for (const auto part : text.empty() ? std::vector{std::string_view()} : split_list(text)) {
    const auto colon = std::min(part.find(':'), part.size());
    const auto rank = variables::whole_number(part.substr(0, colon));
    const auto streams =
        variables::whole_number(part.substr(std::min(colon + 1, part.size())), 0, kOut | kErr);
    if (!rank || !streams) {
      throw UsageError(flag + " '" + text +
                       "': expected 0 (nothing), 1 (output), 2 (errors) or 3 (both), or such a number for "
                       "single local ranks as in 0:1,1:3.");
    }
    if (*rank < ranks) result[static_cast<std::size_t>(*rank)] = *streams;
  }
  return result;
}

std::vector<bool> shown_ranks(const std::string& text, int ranks) {
  std::vector<bool> result(static_cast<std::size_t>(ranks), text.empty());
  if (text.empty()) return result;
  for (const auto part : split_list(text)) {
    const auto rank = variables::whole_number(part);
    if (!rank) {
      throw UsageError("--local-ranks-filter '" + text +
                       "': expected local ranks with commas between them, as in 0,1.");
    }
    if (*rank < ranks) result[static_cast<std::size_t>(*rank)] = true;
  }
  return result;
}

Sink sink_of(bool redirected, bool teed, bool shown, bool logged) {
  if (teed && shown) return Sink::forward;
  if (redirected || (teed && logged)) return Sink::file;
  return shown ? Sink::console : Sink::nothing;
}

bool wants_no_files(const RunOptions& options) { return options.log_dir == "/dev/null"; }

bool any(const std::vector<int>& streams) {
  return std::any_of(streams.begin(), streams.end(), [](int bits) { return bits != 0; });
}

std::filesystem::path temporary_parent(const Environment& environment) {
  const std::string folder = find_variable(environment, "TMPDIR").value_or("");
  return folder.empty() ? "/tmp" : folder;
}

/// The text without the signs that would make it a path.
std::string file_name(std::string text) {
  std::replace(text.begin(), text.end(), '/', '_');
  return text;
}

/// The folder of this run, where something asks for files.
std::string log_folder(const RunOptions& options, bool asked_for, const std::string& run_name,
                       const Environment& environment) {
  const std::string name = file_name(run_name) + "_" + random_id(8);
  if (wants_no_files(options)) return "";
  if (options.log_dir) return std::filesystem::absolute(*options.log_dir) / name;
  return asked_for ? std::filesystem::absolute(temporary_parent(environment)) / ("lockstep_" + name) : "";
}

}  // namespace

std::int64_t parse_size(const std::string& text) {
  constexpr std::string_view kUnits = "KMG";
  constexpr std::int64_t kSmallest = 4096;
  std::string_view digits = text;
  const auto unit = text.empty() ? std::string_view::npos : kUnits.find(text.back());
  if (unit != std::string_view::npos) digits.remove_suffix(1);
  const std::int64_t number = variables::whole_number(digits).value_or(0);
  const std::int64_t bytes = unit == std::string_view::npos ? number : number << (10 * (unit + 1));
  if (bytes >= kSmallest) return bytes;
  throw UsageError("--log-max-size '" + text +
                   "': expected a size of at least 4K, as in 500K, 100M or 2G (or a number of bytes).");
}

OutputConfig output_config(const RunOptions& options, int ranks, const std::string& run_name,
                           const Environment& environment) {
  auto redirects = streams_of("--redirects", options.redirects, ranks);
  const auto tee = streams_of("--tee", options.tee, ranks);
  const auto shown = shown_ranks(options.local_ranks_filter, ranks);
  if (wants_no_files(options)) redirects.assign(redirects.size(), 0);
  OutputConfig config;
  config.out_filters = options.duplicate_stdout_filters;
  config.err_filters = options.duplicate_stderr_filters;
  const bool filtered = any(tee) && !(config.out_filters.empty() && config.err_filters.empty());
  config.log_dir = log_folder(options, any(redirects) || filtered, run_name, environment);
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const auto sink = [&](int bit) {
      return sink_of(redirects[i] & bit, tee[i] & bit, shown[i], !config.log_dir.empty());
    };
    config.outputs.push_back({sink(kOut), sink(kErr)});
  }
  config.line_prefix = find_variable(environment, "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE").value_or("");
  if (!options.log_max_size.empty()) config.log_max_bytes = parse_size(options.log_max_size);
  config.report_lines = options.report_lines;
  return config;
}

}  // namespace lockstep::launch
