#pragma once

#include <string>

#include "lockstep/core/options.hpp"

namespace acceptance {

struct Options {
  std::string device = "auto";
  double timeout = 120;
};

/// The options of lockstep-test; `lockstep test` uses them as well, without LibTorch.
inline const lockstep::OptionTable<Options>& option_table() {
  static const auto table =
      lockstep::OptionTable<Options>("lockstep test", "Checks this installation on several ranks.")
          .add("device", &Options::device, "auto, cpu or cuda.")
          .add("timeout", &Options::timeout, "Seconds to wait for missing ranks.");
  return table;
}

}  // namespace acceptance
