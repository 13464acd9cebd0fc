#include <nlohmann/json.hpp>

#include "checks.hpp"
#include "lockstep/core/error.hpp"

namespace acceptance {
namespace {

using lockstep::Accelerator;

/// Rank 0 writes into the store's corner of the job before anybody else reads.
void main_goes_first(const Accelerator& accelerator) {
  const auto store = accelerator.process_group().new_namespace();
  accelerator.main_process_first([&] {
    if (accelerator.is_main_process()) store.set("prepared", "yes");
    require(store.contains("prepared"), "a rank ran before the main process had finished");
  });
}

void results_reach_all(const Accelerator& accelerator) {
  require(accelerator.run_on_main([] { return std::string("found"); }) == "found", "a text got lost");
  const auto there = accelerator.on_last_process([&] { return accelerator.process_index(); });
  require(there.has_value() == accelerator.is_last_process(), "on_last_process ran on the wrong ranks");
}

void errors_reach_all(const Accelerator& accelerator) {
  bool heard = false;
  try {
    accelerator.on_main_process([] { throw lockstep::Error("on purpose"); });
  } catch (const lockstep::Error& error) {
    heard = std::string(error.what()).find("on purpose") != std::string::npos;
  }
  require(heard, "an exception of the main process did not reach this rank");
}

void triggers_are_agreed(const Accelerator& accelerator) {
  require(!accelerator.check_trigger(), "a trigger that nobody has set");
  if (accelerator.is_last_process()) accelerator.set_trigger();
  require(accelerator.check_trigger(), "the last rank's trigger was not seen");
  require(!accelerator.check_trigger(), "a trigger was seen twice");
}

}  // namespace

std::vector<Check> process_checks() {
  return {{"the main process goes first", main_goes_first},
          {"results of one rank reach all", results_reach_all},
          {"errors of one rank reach all", errors_reach_all},
          {"triggers are agreed", triggers_are_agreed}};
}

}  // namespace acceptance
