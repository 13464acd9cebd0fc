#include "train/graphs/rehearsal.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <fmt/core.h>

#include <array>
#include <bit>
#include <string_view>

#include "comm/cuda/plugin.hpp"

namespace lockstep::train {
namespace {

thread_local Rehearsal* rehearsing = nullptr;

/// As LibTorch says it in SyncDebugMode::warn.
constexpr std::string_view kWaits = "synchronizing CUDA operation";

bool draws(std::string_view operation) {
  constexpr std::array<std::string_view, 12> kRandom = {
      "aten::rand",     "aten::bernoulli",   "aten::normal",    "aten::uniform",    "aten::exponential", "aten::multinomial",
      "aten::geometric", "aten::cauchy",     "aten::log_normal", "aten::native_dropout", "aten::poisson", "aten::binomial"};
  for (const auto name : kRandom) {
    if (operation.starts_with(name)) return true;
  }
  return false;
}

/// Whether an operation that makes or fills a tensor does it on the CPU, as far as its inputs tell.
bool is_on_cpu(c10::ArrayRef<const c10::IValue> inputs) {
  for (const auto& input : inputs) {
    if (input.isTensor() && input.toTensor().defined()) return input.toTensor().is_cpu();
    if (input.isDevice()) return input.toDevice().is_cpu();
  }
  return true;
}

}  // namespace

/// Hears LibTorch's warnings, and passes all others on.
class Rehearsal::Listener final : public c10::WarningHandler {
 public:
  explicit Listener(const std::string& running)
      : before_(c10::WarningUtils::get_warning_handler()), running_(running) {}

  void process(const c10::Warning& warning) override {
    if (std::string_view(warning.msg()).find(kWaits) == std::string_view::npos) return before_->process(warning);
    if (waits_.empty()) waits_ = running_.empty() ? "at its begin" : "in " + running_ + ", or in a backward after it";
  }
  /// Where the host first waits; "" if it does not.
  const std::string& waits() const noexcept { return waits_; }

 private:
  c10::WarningHandler* before_;
  const std::string& running_;
  std::string waits_;
};

Rehearsal::Rehearsal(const at::Device& device)
    : is_cuda_(device.is_cuda()),
      listener_(std::make_unique<Listener>(running_)),
      listening_(listener_.get()),
      handle_(at::addThreadLocalCallback(
          at::RecordFunctionCallback(&Rehearsal::note).needsInputs(true).scopes({at::RecordScope::FUNCTION}))) {
  rehearsing = this;
  if (!is_cuda_ || comm::cuda_plugin().sync_debug_mode() != SyncDebugMode::off) return;
  comm::cuda_plugin().set_sync_debug_mode(SyncDebugMode::warn);
  set_warnings_ = true;
}

Rehearsal::~Rehearsal() {
  at::removeCallback(handle_);
  rehearsing = nullptr;
  if (set_warnings_) comm::cuda_plugin().set_sync_debug_mode(SyncDebugMode::off);
}

std::unique_ptr<at::ObserverContext> Rehearsal::note(const at::RecordFunction& call) {
  if (rehearsing != nullptr) rehearsing->look_at(call);
  return nullptr;
}

void Rehearsal::look_at(const at::RecordFunction& call) {
  const std::string_view name = call.name();
  // Communication is numbered.
  if (!name.starts_with("aten::")) return;
  running_ = name;
  add(std::hash<std::string_view>()(name));
  const auto inputs = call.inputs();
  if (is_cuda_ && drew_.empty() && draws(name) && is_on_cpu(inputs)) drew_ = name;
  for (const auto& input : inputs) {
    if (input.isTensor() && input.toTensor().defined()) {
      for (const auto size : input.toTensor().sizes()) add(static_cast<std::uint64_t>(size));
    } else if (input.isDouble()) {
      add(std::bit_cast<std::uint64_t>(input.toDouble()));
    } else if (input.isInt()) {
      add(static_cast<std::uint64_t>(input.toInt()));
    } else if (input.isBool()) {
      add(input.toBool() ? 1 : 2);
    }
  }
}

void Rehearsal::add(std::uint64_t value) noexcept {
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;
  signature_ = (std::rotl(signature_, 7) ^ value) * kOdd;
}

std::string Rehearsal::obstacle() const {
  if (!listener_->waits().empty()) return fmt::format("A step waits for the device ({})", listener_->waits());
  if (!drew_.empty()) return fmt::format("A step draws random numbers on the CPU (in {})", drew_);
  return "";
}

}  // namespace lockstep::train
