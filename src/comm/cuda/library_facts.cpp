#include <fmt/core.h>
#include <torch/version.h>

#include <exception>
#include <nlohmann/json.hpp>
#include <string>

#include "core/json_text.hpp"
#include "lockstep/comm/cuda.hpp"
#include "lockstep/core/version.hpp"

namespace lockstep {
namespace {

using nlohmann::json;

/// Pairs of name and value.
json library_facts() {
  json list = json::array();
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) list.push_back(json::array({name, value}));
  };
  add("library", version());
  add("LibTorch", TORCH_VERSION);
  try {
    add("CUDA devices", fmt::format("{}", cuda_device_count()));
    add("CUDA", cuda_obstacle());
    add("CUDA peer access", cuda_peer_access());
    add("NCCL", nccl_version());
  } catch (const std::exception& error) {
    add("CUDA", error.what());
  }
  return list;
}

}  // namespace
}  // namespace lockstep

/// Called by `lockstep env` after it has loaded this library. Returns a JSON list of pairs of strings, valid
/// as long as the library is loaded.
extern "C" const char* lockstep_library_facts() {
  static const std::string text = lockstep::json_text(lockstep::library_facts());
  return text.c_str();
}
