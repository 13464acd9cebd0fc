#include "bench_options.hpp"

#include <fmt/core.h>

#include "core/byte_size.hpp"
#include "lockstep/core/error.hpp"

namespace bench {
namespace {

/// Parses "8", "4K", "128M", "1G". Throws UsageError that names the option.
std::int64_t bytes_from(const std::string& text, const std::string& option) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 36U;
  const auto bytes = lockstep::parse_bytes(text);
  if (bytes && *bytes >= 1 && *bytes <= kMost) return static_cast<std::int64_t>(*bytes);
  throw lockstep::UsageError(
      fmt::format("--{} '{}': expected bytes, as in 8, 4K, 128M or 1G, up to 64G", option, text));
}

std::vector<std::string> collective_choices() {
  auto names = collective_names();
  names.push_back("all");
  return names;
}

}  // namespace

const std::vector<std::string>& collective_names() {
  static const std::vector<std::string> names{"all_gather", "all_reduce", "all_to_all", "barrier",
                                              "broadcast",  "gather",     "reduce",     "reduce_scatter",
                                              "scatter",    "send_recv"};
  return names;
}

const lockstep::OptionTable<Options>& option_table() {
  using namespace lockstep;
  static const auto table =
      OptionTable<Options>("lockstep bench comm",
                           "Measures collectives between the ranks of a job, in the manner of nccl-tests: "
                           "every size is timed, and its result checked.")
          .add("collective", &Options::collective, "The collective to measure.", one_of(collective_choices()))
          .add("min-bytes", &Options::min_bytes,
               "The first size in bytes; K, M and G are accepted, as in 64K.", metavar("SIZE"))
          .add("max-bytes", &Options::max_bytes, "The last size.", metavar("SIZE"))
          .add("step-factor", &Options::step_factor, "Each size is this many times the one before.",
               at_least(2))
          .add("dtype", &Options::dtype, "The type of the elements.",
               one_of({"bfloat16", "double", "float", "half", "int32", "int64", "int8", "uint8"}))
          .add("op", &Options::op, "The reduction.", one_of({"sum", "avg", "product", "min", "max"}))
          .add("backend", &Options::backend, "The backend, as in ProcessGroupOptions.", not_empty())
          .add("device", &Options::device, "cpu, cuda, or auto.", one_of({"cpu", "cuda", "auto"}))
          .add("iterations", &Options::iterations, "Timed rounds of each size.", at_least(1))
          .add("warmup", &Options::warmup, "Untimed rounds before them.", at_least(0))
          .add("check", &Options::check, "Verify the result of each size.")
          .add("timeout", &Options::timeout, "Seconds after which a rank gives up.", at_least(1))
          .add("json", &Options::json, "Also write the table to this file, as JSON.", metavar("FILE"));
  return table;
}

std::vector<std::int64_t> sizes_of(const Options& options) {
  const std::int64_t most = bytes_from(options.max_bytes, "max-bytes");
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = bytes_from(options.min_bytes, "min-bytes"); size <= most;
       size *= options.step_factor)
    sizes.push_back(size);
  if (!sizes.empty()) return sizes;
  throw lockstep::UsageError(
      fmt::format("--min-bytes {} is more than --max-bytes {}", options.min_bytes, options.max_bytes));
}

}  // namespace bench
