#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace lockstep::launch {

/// `lockstep checkpoint ls|verify|diff|merge ...`: looks at saved trainings without LibTorch. Returns the
/// exit status: 0; 1 when something is damaged or differs. Throws UsageError, DataError and Error.
int checkpoint_command(const std::vector<std::string>& words, std::ostream& out);

}  // namespace lockstep::launch
