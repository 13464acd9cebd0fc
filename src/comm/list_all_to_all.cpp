#include "list_all_to_all.hpp"

#include <ATen/ThreadLocalState.h>
#include <ATen/core/ivalue.h>

#include <utility>

#include "flat_tensors.hpp"

namespace lockstep::comm {
namespace {

using Tensors = std::vector<at::Tensor>;
using WorkPointer = c10::intrusive_ptr<c10d::Work>;
using Future = c10::ivalue::Future;

/// The exchange of the flat tensors, which has ended when their content is where it belongs.
class ListAllToAll final : public c10d::Work {
 public:
  ListAllToAll(WorkPointer exchange, FlatTensors received, const Tensors& outputs)
      : c10d::Work(-1, c10d::OpType::ALLTOALL), exchange_(std::move(exchange)), outputs_(outputs) {
    // then() fails as the exchange does. It runs in a thread of the backend, which knows nothing of the
    // caller's inference mode.
    copied_ = exchange_->getFuture()->then(
        at::wrapPropagateTLSState([received = std::move(received), outputs](Future& exchanged) {
          static_cast<void>(exchanged.value());
          copy_out(received, outputs);
          return c10::IValue(outputs);
        }),
        c10::ListType::create(c10::TensorType::get()));
  }

  bool isCompleted() override { return copied_->completed(); }
  bool isSuccess() const override { return copied_->completed() && !copied_->hasError(); }
  std::exception_ptr exception() const override {
    return copied_->completed() && copied_->hasError() ? copied_->exception_ptr() : nullptr;
  }
  Tensors result() override { return outputs_; }
  bool wait(std::chrono::milliseconds timeout) override {
    if (!exchange_->wait(timeout)) return false;
    copied_->waitAndThrow();
    return true;
  }
  c10::intrusive_ptr<Future> getFuture() override { return copied_; }

 private:
  WorkPointer exchange_;
  Tensors outputs_;
  c10::intrusive_ptr<Future> copied_;
};

/// As bytes: a backend need not know the dtype.
FlatTensors as_bytes(const FlatTensors& flat) {
  FlatTensors bytes{flat.buffer.view(at::kByte), flat.sizes};
  for (auto& size : bytes.sizes) size *= static_cast<std::int64_t>(flat.buffer.element_size());
  return bytes;
}

}  // namespace

WorkPointer list_all_to_all(c10d::Backend& backend, const Tensors& outputs, const Tensors& inputs,
                            const c10d::AllToAllOptions& options) {
  check_lists(outputs, inputs, backend.getSize());
  auto received = flat_space_for(outputs);
  auto from = as_bytes(flattened(inputs)), to = as_bytes(received);
  auto exchange = backend.alltoall_base(to.buffer, from.buffer, to.sizes, from.sizes, options);
  return c10::make_intrusive<ListAllToAll>(std::move(exchange), std::move(received), outputs);
}

}  // namespace lockstep::comm
