#include "train/comm_hook_by_name.hpp"

#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/parallel/comm_hooks.hpp"
#include "lockstep/parallel/power_sgd.hpp"

namespace lockstep::train {
namespace {

at::ScalarType half_type(const std::string& name) {
  if (name == "fp16") return at::kHalf;
  if (name == "bf16") return at::kBFloat16;
  throw UsageError("comm_wrapper '" + name + "': expected no, fp16 or bf16.");
}

std::shared_ptr<CommHook> plain_hook(const std::string& name) {
  if (name == "no") return nullptr;
  if (name == "fp16" || name == "bf16") return std::make_shared<CompressHook>(half_type(name));
  if (name == "power_sgd") return std::make_shared<PowerSgdHook>();
  if (name == "batched_power_sgd") return std::make_shared<BatchedPowerSgdHook>();
  throw UsageError("comm_hook '" + name +
                   "': expected no, fp16, bf16, power_sgd or batched_power_sgd. Others are given to "
                   "register_comm_hook of the prepared model.");
}

}  // namespace

std::shared_ptr<CommHook> comm_hook_by_name(const std::string& hook, const std::string& wrapper) {
  auto plain = plain_hook(hook);
  if (wrapper == "no") return plain;
  const auto type = half_type(wrapper);
  if (plain && hook.ends_with("power_sgd")) return std::make_shared<CompressWrapper>(type, std::move(plain));
  throw UsageError("comm_wrapper '" + wrapper + "' goes around a PowerSGD hook, not around '" + hook + "'.");
}

}  // namespace lockstep::train
