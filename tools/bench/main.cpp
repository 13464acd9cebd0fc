// What `lockstep bench comm` starts as every rank of the job: how fast are the collectives, and are they
// right?
#include <iostream>
#include <nlohmann/json.hpp>

#include "bench_options.hpp"
#include "collectives.hpp"
#include "lockstep/comm/cuda.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "lockstep/train/accelerator.hpp"
#include "measurement.hpp"
#include "report.hpp"

namespace {

using namespace lockstep;

void say(const ProcessGroup& group, const std::string& text) {
  if (group.rank() == 0) std::cout << text << std::flush;
}

/// What the figures depend on, beside the hardware.
std::string surroundings(const ProcessGroup& group) {
  std::string text;
  if (group.device().is_cuda()) {
    text += "# NCCL " + nccl_version() + "\n";
    if (const auto peers = cuda_peer_access(); !peers.empty()) text += "# peer access: " + peers + "\n";
  }
  for (const auto& [name, value] : process_environment()) {
    const bool counts =
        name.starts_with("NCCL_") || name.starts_with("TORCH_NCCL_") || name.starts_with("GLOO_");
    if (counts) text += "# " + name + "=" + value + "\n";
  }
  return text;
}

std::vector<bench::Measurement> measure_all(const ProcessGroup& group, const bench::Options& options) {
  std::vector<std::string> names{options.collective};
  if (options.collective == "all") names = bench::collective_names();
  std::vector<bench::Measurement> all;
  for (const auto& name : names) {
    say(group, bench::heading(name));
    const auto sizes = bench::has_size(name) ? bench::sizes_of(options) : std::vector<std::int64_t>{0};
    for (const std::int64_t bytes : sizes) {
      all.push_back(bench::measure(name, group, options, bytes));
      say(group, bench::line_of(all.back(), options));
    }
  }
  return all;
}

void write_json(const std::string& path, const nlohmann::json& content) {
  AtomicFile file(path);
  file.write(content.dump(2) + "\n");
  file.commit();
}

void check(const std::vector<bench::Measurement>& all) {
  for (const auto& measurement : all) {
    if (measurement.wrong <= 0) continue;
    throw Error(measurement.collective + " of " + std::to_string(measurement.bytes) + " bytes gave " +
                std::to_string(measurement.wrong) +
                " wrong numbers: memory, a network card, a driver or the library is broken");
  }
}

int run(int argc, char** argv) {
  const auto parsed = bench::option_table().parse(argc, argv);
  if (parsed.help) {
    std::cout << bench::option_table().help();
    return 0;
  }
  const bench::Options& options = parsed.options;
  const World world = World::from_environment();
  if (world.world_size == 1) throw UsageError("a benchmark of collectives needs two ranks or more");
  const auto group = ProcessGroup::init(world, {.backend = comm_backend_from(options.backend),
                                                .device = choose_device(options.device, world.local_rank),
                                                .timeout = std::chrono::seconds(options.timeout)});
  say(group, "# " + std::to_string(group.size()) + " ranks on " + std::to_string(world.group_world_size) +
                 " node(s), backend " + options.backend + ", device " + group.device().str() + "\n" +
                 surroundings(group));
  const auto all = measure_all(group, options);
  if (!options.json.empty() && group.rank() == 0)
    write_json(options.json, bench::json_of(all, options, group.size()));
  check(all);
  group.barrier();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_program("lockstep-bench", [&] { return run(argc, argv); });
}
