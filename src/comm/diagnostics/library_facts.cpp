// What `lockstep env` asks the library when it has loaded it.
#include <torch/version.h>

#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/comm/cuda.hpp"
#include "lockstep/core/version.hpp"

namespace {

using nlohmann::json;

/// Without its name the JSON library would make an object of a list of pairs.
json pair(const char* name, const std::string& value) { return json::array({name, value}); }

json facts() {
  json list = json::array({pair("library", lockstep::version()), pair("LibTorch", TORCH_VERSION)});
  try {
    list.push_back(pair("CUDA devices", std::to_string(lockstep::cuda_device_count())));
    const std::string obstacle = lockstep::cuda_obstacle();
    if (!obstacle.empty()) list.push_back(pair("CUDA", obstacle));
    const std::string peers = lockstep::cuda_peer_access();
    if (!peers.empty()) list.push_back(pair("CUDA peer access", peers));
    const std::string nccl = lockstep::nccl_version();
    if (!nccl.empty()) list.push_back(pair("NCCL", nccl));
  } catch (const std::exception& error) {
    list.push_back(pair("CUDA", error.what()));
  }
  return list;
}

}  // namespace

/// JSON: a list of pairs of texts. Lives as long as the library.
extern "C" const char* lockstep_library_facts() {
  static const std::string text = facts().dump(-1, ' ', false, json::error_handler_t::replace);
  return text.c_str();
}
