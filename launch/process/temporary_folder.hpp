#pragma once

#include <string>

#include "lockstep/core/environment.hpp"

namespace lockstep::launch {

/// As many random hexadecimal digits.
std::string random_id(int length);

/// A folder of this user's own below TMPDIR (else /tmp), removed with all that is in it when the object goes.
class TemporaryFolder {
 public:
  /// Throws lockstep::Error that names the place when it cannot be made.
  explicit TemporaryFolder(const Environment& environment);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

}  // namespace lockstep::launch
