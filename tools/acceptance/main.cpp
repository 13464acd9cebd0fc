// What `lockstep test` starts as every rank of a job: does what training needs work on these machines, with
// this number of ranks? One line a check; ends with 1 at the first one that fails.
#include <fmt/core.h>

#include <iostream>

#include "acceptance_options.hpp"
#include "checks.hpp"
#include "lockstep/core/runtime/program.hpp"

namespace {

using acceptance::option_table;
using lockstep::Accelerator;

std::vector<acceptance::Check> all_checks() {
  std::vector<acceptance::Check> all;
  for (const auto& part :
       {acceptance::communication_checks(), acceptance::training_checks(), acceptance::checkpoint_checks()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

void run_check(Accelerator& accelerator, const acceptance::Check& check) {
  try {
    accelerator.fail_together([&] {
      check.run(accelerator);
      accelerator.wait_for_everyone_at(check.name);
    });
  } catch (const std::exception& error) {
    std::cout << fmt::format("FAILED  {}, on rank {}: {}\n", check.name, accelerator.process_index(),
                             error.what())
              << std::flush;
    throw;
  }
  accelerator.print("ok      ", check.name);
}

int run(const lockstep::OptionTable<acceptance::Options>::Parsed& parsed) {
  if (parsed.help) {
    std::cout << option_table().help();
    return 0;
  }
  const auto timeout = std::chrono::milliseconds(static_cast<std::int64_t>(parsed.options.timeout * 1000));
  Accelerator accelerator({.device = parsed.options.device, .timeout = timeout});
  const auto checks = all_checks();
  for (const auto& check : checks) run_check(accelerator, check);
  accelerator.print("passed: ", checks.size(), " checks with ", accelerator.num_processes(), " rank(s) on ",
                    accelerator.device().str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_program("lockstep-test", [&] { return run(option_table().parse(argc, argv)); });
}
