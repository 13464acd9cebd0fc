// `lockstep bench comm` starts this program as every rank of a job. It measures collectives and checks their
// results.
#include <fmt/core.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "bench_options.hpp"
#include "collectives.hpp"
#include "core/commands.hpp"
#include "core/json_text.hpp"
#include "lockstep/comm/cuda.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "lockstep/train/accelerator.hpp"

namespace {

using namespace lockstep;
using bench::Measurement;

constexpr double kGiga = 1e9;

void say(const ProcessGroup& group, const std::string& text) {
  if (group.rank() == 0) std::cout << text << std::flush;
}

/// What the results depend on, besides the hardware.
std::string surroundings(const ProcessGroup& group) {
  std::string text;
  if (group.device().is_cuda()) {
    text += fmt::format("# NCCL {}\n", nccl_version());
    if (const auto peers = cuda_peer_access(); !peers.empty())
      text += fmt::format("# peer access: {}\n", peers);
  }
  for (const auto& [name, value] : process_environment()) {
    const bool counts =
        name.starts_with("NCCL_") || name.starts_with("TORCH_NCCL_") || name.starts_with("GLOO_");
    if (counts) text += fmt::format("# {}={}\n", name, value);
  }
  return text;
}

/// The columns of nccl-tests.
std::string heading(const std::string& collective) {
  return fmt::format(
      "# {}\n#        size         count      type   redop        time   algbw   busbw  #wrong\n"
      "#         (B)    (elements)                          (us)  (GB/s)  (GB/s)\n",
      collective);
}

std::string line_of(const Measurement& measurement) {
  const std::string wrong = measurement.wrong < 0 ? "n/a" : fmt::format("{}", measurement.wrong);
  return fmt::format("{:13} {:13} {:>9} {:>7} {:11.2f} {:7.2f} {:7.2f} {:>7}\n", measurement.bytes,
                     measurement.count, measurement.type, measurement.redop, measurement.seconds * 1e6,
                     measurement.algorithm_bandwidth / kGiga, measurement.bus_bandwidth / kGiga, wrong);
}

nlohmann::json json_of(const std::vector<Measurement>& all, const bench::Options& options, int ranks) {
  nlohmann::json results = nlohmann::json::array();
  for (const auto& measurement : all) {
    results.push_back({{"collective", measurement.collective},
                       {"size", measurement.bytes},
                       {"count", measurement.count},
                       {"type", measurement.type},
                       {"redop", measurement.redop},
                       {"time_us", measurement.seconds * 1e6},
                       {"algbw_gb_s", measurement.algorithm_bandwidth / kGiga},
                       {"busbw_gb_s", measurement.bus_bandwidth / kGiga},
                       {"wrong", measurement.wrong}});
  }
  return {{"ranks", ranks}, {"backend", options.backend}, {"device", options.device}, {"results", results}};
}

std::vector<Measurement> measure_all(const ProcessGroup& group, const bench::Options& options) {
  std::vector<std::string> names{options.collective};
  if (options.collective == "all") names = bench::collective_names();
  std::vector<Measurement> all;
  for (const auto& name : names) {
    say(group, heading(name));
    const auto sizes = bench::has_size(name) ? bench::sizes_of(options) : std::vector<std::int64_t>{0};
    for (const std::int64_t bytes : sizes) {
      all.push_back(bench::measure(name, group, options, bytes));
      say(group, line_of(all.back()));
    }
  }
  return all;
}

int run(const std::vector<std::string>& words) {
  const auto parsed = parse_or_help(bench::option_table(), words, std::cout);
  if (!parsed) return 0;
  const bench::Options& options = parsed->options;
  const World world = World::from_environment();
  if (world.world_size == 1) throw UsageError("a benchmark of collectives needs two ranks or more");
  const auto group = ProcessGroup::init(world, {.backend = comm_backend_from(options.backend),
                                                .device = choose_device(options.device, world.local_rank),
                                                .timeout = std::chrono::seconds(options.timeout)});
  say(group, fmt::format("# {} ranks on {} node(s), backend {}, device {}\n{}", group.size(),
                         world.group_world_size, options.backend, group.device().str(), surroundings(group)));
  const auto all = measure_all(group, options);
  if (!options.json.empty() && group.rank() == 0)
    write_atomically(options.json, json_text(json_of(all, options, group.size()), 2) + "\n");
  for (const auto& measurement : all) bench::require_right(measurement, group.rank());
  group.barrier();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("lockstep-bench", [&] { return run({argv + std::min(argc, 1), argv + argc}); });
}
