#pragma once

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "lockstep/core/error.hpp"
#include "shm/peer_connections.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::testing {

/// A store for ranks that are processes: a folder.
class FolderBootstrapStore final : public shm::BootstrapStore {
 public:
  explicit FolderBootstrapStore(std::filesystem::path folder) : folder_(std::move(folder)) {}
  void post(const std::string& key, const std::string& value) override {
    const std::filesystem::path path = file_of(key);
    std::ofstream(path.string() + ".new") << value;
    std::filesystem::rename(path.string() + ".new", path);
  }
  std::string read(const std::string& key, net::Deadline deadline) override {
    while (net::Clock::now() < deadline) {
      std::ifstream file(file_of(key));
      if (file) return {std::istreambuf_iterator<char>(file), {}};
      usleep(1000);
    }
    throw TimeoutError("nobody posted " + key);
  }

 private:
  std::filesystem::path file_of(std::string key) const {
    std::replace(key.begin(), key.end(), '/', '_');
    return folder_ / key;
  }

  std::filesystem::path folder_;
};

}  // namespace lockstep::testing
