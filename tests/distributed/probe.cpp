// The program that the tests of this folder start as ranks: `probe SCENARIO [ARGUMENT ...]`.
#include "probe.hpp"

#include <csignal>
#include <map>
#include <thread>

#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/program.hpp"

namespace probe {

at::Device device() {
  const auto environment = lockstep::process_environment();
  const at::Device named(lockstep::find_variable(environment, "PROBE_DEVICE").value_or("cpu"));
  if (named.is_cpu() || named.has_index()) return named;
  const int number = lockstep::World::from_environment(environment).local_rank;
  return {named.type(), static_cast<at::DeviceIndex>(number)};
}

lockstep::Accelerator join(milliseconds timeout, milliseconds join_timeout) {
  return lockstep::Accelerator({.device = device().str(), .timeout = timeout, .join_timeout = join_timeout});
}

const std::string& argument(const Words& words, std::size_t index) {
  if (index < words.size()) return words[index];
  throw lockstep::UsageError("this scenario needs " + std::to_string(index + 1) + " argument(s)");
}

void die_after(milliseconds delay) {
  std::thread([delay] {
    std::this_thread::sleep_for(delay);
    std::raise(SIGKILL);
  }).detach();
}

namespace {

using Scenario = int (*)(const Words&);

const std::map<std::string, Scenario> kScenarios{
    {"collectives", collectives},
    {"order", order},
    {"local_order", local_order},
    {"slow_main", slow_main},
    {"main_throws", main_throws},
    {"guard_throws", guard_throws},
    {"save", save},
    {"hello", hello},
    {"join_within", join_within},
    {"killed_in_all_reduce", killed_in_all_reduce},
    {"killed_in_barrier", killed_in_barrier},
    {"killed_in_backward", killed_in_backward},
    {"killed_in_sharded_backward", killed_in_sharded_backward},
    {"throws", throws},
    {"leaves_early", leaves_early},
    {"library_warning", library_warning},
    {"stops", stops},
    {"hangs", hangs},
    {"leaves_in_collectives", leaves_in_collectives},
    {"crashes", crashes},
    {"always_fails", always_fails},
    {"train", train},
    {"mismatch", mismatch},
    {"disagree", disagree},
    {"awaited", awaited},
    {"killed_in", killed_in},
    {"traced", traced},
};

int run(const Words& words) {
  const auto found = kScenarios.find(argument(words, 0));
  if (found == kScenarios.end()) throw lockstep::UsageError("no scenario '" + words[0] + "'");
  return found->second({words.begin() + 1, words.end()});
}

}  // namespace
}  // namespace probe

int main(int argc, char** argv) {
  return lockstep::run_program("probe", [&] { return probe::run({argv + 1, argv + argc}); });
}
