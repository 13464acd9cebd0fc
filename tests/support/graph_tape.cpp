#include "support/graph_tape.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <cstring>
#include <map>
#include <mutex>
#include <set>

namespace lockstep::testing {
namespace {

using torch::jit::Stack;
constexpr auto kMode = c10::DispatchKey::TESTING_ONLY_GenericMode;

/// The same memory without its history.
c10::IValue bare(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor().defined() ? value.toTensor().detach() : value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector())
      list.push_back(tensor.defined() ? tensor.detach() : tensor);
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      list.push_back(tensor && tensor->defined() ? std::optional(tensor->detach()) : tensor);
    return list;
  }
  return value;
}

std::vector<at::Tensor> tensors_in(const c10::IValue& value) {
  if (value.isTensor()) return {value.toTensor()};
  if (value.isTensorList()) return value.toTensorList().vec();
  return {};
}

struct Call {
  c10::OperatorHandle operation;
  Stack inputs, outputs;
};

struct Tape {
  std::vector<Call> calls;
  /// What memory was before its first change.
  std::map<void*, std::pair<c10::Storage, std::string>> before;
  /// What operations have read, and the memory that they have made.
  std::set<void*> known;
  std::vector<c10::Storage> made;
  int fails_at = -1;

  void keep(const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    const c10::Storage& storage = tensor.storage();
    const auto* const bytes = static_cast<const char*>(storage.data());
    before.try_emplace(storage.unsafeGetStorageImpl(), storage, std::string(bytes, storage.nbytes()));
  }

  void read(const c10::IValue& value) {
    for (const auto& tensor : tensors_in(value)) {
      if (tensor.defined()) known.insert(tensor.storage().unsafeGetStorageImpl());
    }
  }
  void make(const c10::IValue& value) {
    for (const auto& tensor : tensors_in(value)) {
      if (tensor.defined() && known.insert(tensor.storage().unsafeGetStorageImpl()).second)
        made.push_back(tensor.storage());
    }
  }

  /// Nothing of what was recorded has run: memory that it made has no values yet.
  void undo() {
    for (auto& [key, entry] : before)
      std::memcpy(entry.first.mutable_data(), entry.second.data(), entry.second.size());
    before.clear();
    for (const auto& storage : made) std::memset(storage.mutable_data(), 0xff, storage.nbytes());
    made.clear();
  }
};

Tape* recording = nullptr;

void note(const c10::OperatorHandle& operation, c10::DispatchKeySet keys, Stack* stack) {
  // What it is composed of is noted.
  if (operation.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
    return operation.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kMode),
                                     stack);
  }
  const c10::impl::ExcludeDispatchKeyGuard inside(kMode);
  if (recording == nullptr) return operation.callBoxed(*stack);
  const auto& schema = operation.schema();
  const std::string name = schema.name();
  TORCH_CHECK(name != "aten::item" && name != "aten::_local_scalar_dense" && name != "aten::equal",
              "operation not permitted when stream is capturing");
  TORCH_CHECK(recording->fails_at != static_cast<int>(recording->calls.size()), "this operation fails");
  const std::size_t count = schema.arguments().size();
  Call call{operation, {}, {}};
  for (std::size_t i = 0; i < count; ++i) {
    const c10::IValue& input = (*stack)[stack->size() - count + i];
    const auto* const alias = schema.arguments()[i].alias_info();
    if (alias != nullptr && alias->isWrite()) {
      for (const auto& tensor : tensors_in(input)) recording->keep(tensor);
    }
    call.inputs.push_back(bare(input));
    recording->read(input);
  }
  operation.callBoxed(*stack);
  for (std::size_t i = 0; i < schema.returns().size(); ++i)
    call.outputs.push_back(bare((*stack)[stack->size() - schema.returns().size() + i]));
  for (const auto& output : call.outputs) recording->make(output);
  recording->calls.push_back(std::move(call));
}

class TapeGraph final : public comm::CudaGraph {
 public:
  explicit TapeGraph(GraphTape& owner) : owner_(owner) {}

  void begin() override {
    tape_.fails_at = std::exchange(owner_.fails_at, -1);
    generator_ = at::detail::getDefaultCPUGenerator().get_state().clone();
    recording = &tape_;
    c10::impl::tls_set_dispatch_key_included(kMode, true);
  }

  void end() override {
    c10::impl::tls_set_dispatch_key_included(kMode, false);
    recording = nullptr;
    tape_.undo();
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    generator.set_state(generator_);
    ++owner_.recordings;
  }

  void replay() override {
    const at::NoGradGuard no_grad;
    for (const auto& call : tape_.calls) {
      if (call.operation.schema().name() == owner_.leaves_out) continue;
      Stack stack = call.inputs;
      call.operation.callBoxed(stack);
      for (std::size_t i = 0; i < call.outputs.size(); ++i)
        put(tensors_in(stack[i]), tensors_in(call.outputs[i]));
    }
    ++owner_.replays;
  }

 private:
  static void put(const std::vector<at::Tensor>& from, const std::vector<at::Tensor>& to) {
    for (std::size_t i = 0; i < to.size(); ++i) {
      if (to[i].defined() && from[i].const_data_ptr() != to[i].const_data_ptr())
        to[i].detach().copy_(from[i]);
    }
  }

  GraphTape& owner_;
  Tape tape_;
  at::Tensor generator_;
};

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&note>());
}

}  // namespace

GraphTape::GraphTape() : replaced_(comm::GraphRecorder::replace(*this)) {}
GraphTape::~GraphTape() = default;

std::unique_ptr<comm::CudaGraph> GraphTape::make_graph(const comm::GraphPool& /*pool*/) {
  return std::make_unique<TapeGraph>(*this);
}

bool GraphTape::is_recording() { return recording != nullptr; }

}  // namespace lockstep::testing
