#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "kernels/nvrtc.hpp"

namespace lockstep::kernels {

/// Compiled kernels as files: a process finds what others compiled, and the first one compiles it. A file
/// that is damaged, or of another format, is made anew.
class CubinCache {
 public:
  /// `folder`: made if necessary; if that fails or it is empty, nothing is kept.
  explicit CubinCache(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// What is kept under `key`; nothing if there is none, or a damaged file. Any thread and process.
  std::optional<Cubin> find(const std::string& key) const;

  /// What is kept under `key`, any text that is unique to the result; otherwise what `make` returns. Throws
  /// what `make` throws. Any thread and process.
  Cubin get(const std::string& key, const std::function<Cubin()>& make) const;

 private:
  std::filesystem::path path_of(const std::string& key) const;

  std::filesystem::path folder_;
};

/// The folder "kernels" of the cache of data sets ($LOCKSTEP_CACHE); empty if there is no such cache.
std::filesystem::path cubin_folder();

}  // namespace lockstep::kernels
