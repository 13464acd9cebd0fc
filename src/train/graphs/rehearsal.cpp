#include "train/graphs/rehearsal.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <fmt/core.h>

#include <algorithm>
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
      "aten::rand",        "aten::bernoulli",      "aten::normal",    "aten::uniform",
      "aten::exponential", "aten::multinomial",    "aten::geometric", "aten::cauchy",
      "aten::log_normal",  "aten::native_dropout", "aten::poisson",   "aten::binomial"};
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
    if (std::string_view(warning.msg()).find(kWaits) == std::string_view::npos)
      return before_->process(warning);
    if (waits_.empty())
      waits_ = running_.empty() ? "at its begin" : "in " + running_ + ", or in a backward after it";
  }
  /// Where the host first waits; "" if it does not.
  const std::string& waits() const noexcept { return waits_; }

 private:
  c10::WarningHandler* before_;
  const std::string& running_;
  std::string waits_;
};

Rehearsal::Rehearsal(const at::Device& device, const std::vector<at::Tensor>& inputs)
    : is_cuda_(device.is_cuda()),
      listener_(std::make_unique<Listener>(running_)),
      listening_(listener_.get()),
      handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(&Rehearsal::note, &Rehearsal::note_end)
                                             .needsInputs(true)
                                             .needsOutputs(true)
                                             .scopes({at::RecordScope::FUNCTION}))) {
  for (const auto& input : inputs) own(input);
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
  if (rehearsing == nullptr) return nullptr;
  rehearsing->look_at(call);
  ++rehearsing->depth_;
  return nullptr;
}

void Rehearsal::note_end(const at::RecordFunction& call, at::ObserverContext* /*context*/) {
  if (rehearsing == nullptr) return;
  if (rehearsing->depth_ > 0) --rehearsing->depth_;
  for (const auto& output : call.outputs()) rehearsing->own(output);
}

/// In-place operations return memory that was there before.
void Rehearsal::own(const c10::IValue& value) {
  if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) own(tensor);
  } else if (value.isTensor() && value.toTensor().defined() && value.toTensor().has_storage()) {
    const void* const memory = value.toTensor().storage().data();
    if (!foreign_.contains(memory)) own_.insert(memory);
  }
}

void Rehearsal::look_at_tensor(const at::Tensor& tensor) {
  for (const auto size : tensor.sizes()) add(static_cast<std::uint64_t>(size));
  if (!tensor.has_storage()) return;
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number() || (is_cuda_ && tensor.is_cpu())) {
    // A number of the host, which a replay would not see again. That of `x * 0.5` is made anew each time.
    const auto* const bytes = static_cast<const unsigned char*>(tensor.storage().data());
    if (tensor.dim() != 0 || bytes == nullptr) return;
    for (std::size_t i = 0; i < std::min<std::size_t>(tensor.storage().nbytes(), 16); ++i) add(bytes[i]);
    return;
  }
  const void* const memory = tensor.storage().data();
  // Within an operation, others write to the results that it has made and not returned yet.
  if (depth_ > 0 || own_.contains(memory)) return;
  foreign_.insert(memory);
  add(reinterpret_cast<std::uintptr_t>(memory));
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
    if (input.isTensor()) {
      if (input.toTensor().defined()) look_at_tensor(input.toTensor());
    } else if (input.isIntList()) {
      for (const auto number : input.toIntVector()) add(static_cast<std::uint64_t>(number));
    } else if (input.isDoubleList()) {
      for (const auto number : input.toDoubleVector()) add(std::bit_cast<std::uint64_t>(number));
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
