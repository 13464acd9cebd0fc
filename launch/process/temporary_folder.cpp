#include "process/temporary_folder.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>

#include "lockstep/core/error.hpp"

namespace lockstep::launch {

std::string random_id(int length) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::random_device random;
  std::string id;
  for (int i = 0; i < length; ++i) id += kDigits[random() % 16];
  return id;
}

TemporaryFolder::TemporaryFolder(const Environment& environment) {
  std::string parent = find_variable(environment, "TMPDIR").value_or("");
  if (parent.empty()) parent = "/tmp";
  path_ = std::filesystem::absolute(parent) / "lockstep_XXXXXX";
  if (mkdtemp(path_.data()) == nullptr) {
    throw Error("cannot make a temporary folder in '" + parent + "': " + std::strerror(errno) +
                ". Set TMPDIR to a folder that can be written.");
  }
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace lockstep::launch
