#include <fmt/core.h>

#include <utility>

#include "comm/errors.hpp"
#include "comm/in_order.hpp"
#include "comm/process_group_impl.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace comm {
namespace {

using WorkPointer = c10::intrusive_ptr<c10d::Work>;

bool is_receive(const P2POp& operation) { return operation.op == P2POp::Op::irecv; }

WorkPointer start(c10d::Backend& backend, const P2POp& operation) {
  std::vector<at::Tensor> tensors{operation.tensor};
  return is_receive(operation) ? backend.recv(tensors, operation.peer, operation.tag)
                               : backend.send(tensors, operation.peer, operation.tag);
}

/// A coalesced operation returns no Work before the end. Without endCoalescing(), NCCL's group would stay
/// open for this thread's next calls.
WorkPointer start_coalesced(c10d::Backend& backend, const std::vector<P2POp>& operations) {
  backend.startCoalescing();
  try {
    for (const auto& operation : operations) start(backend, operation);
  } catch (...) {
    const auto failure = std::current_exception();
    try {
      backend.endCoalescing();
    } catch (const std::exception&) {
    }
    std::rethrow_exception(failure);
  }
  return backend.endCoalescing();
}

std::vector<WorkPointer> start_each(c10d::Backend& backend, const std::vector<P2POp>& operations) {
  std::vector<WorkPointer> works(operations.size());
  std::vector<WorkPointer> receives;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    if (is_receive(operations[i])) receives.push_back(works[i] = start(backend, operations[i]));
  }
  for (std::size_t i = 0; i < operations.size(); ++i) {
    if (is_receive(operations[i])) continue;
    std::erase_if(receives, [](const WorkPointer& receive) { return receive->isCompleted(); });
    works[i] = start(backend, operations[i]);
  }
  return works;
}

}  // namespace

std::vector<WorkPointer> start_batch(c10d::Backend& backend, const std::vector<P2POp>& operations) {
  if (backend.supportsCoalescing()) return {start_coalesced(backend, operations)};
  return start_each(backend, operations);
}

}  // namespace comm

std::vector<Work> ProcessGroup::batch_isend_irecv(const std::vector<P2POp>& operations) const {
  if (operations.empty()) return {};
  const at::Tensor& first = operations.front().tensor;
  for (const auto& operation : operations) {
    impl_->check_message("batch_isend_irecv", operation);
    if (operation.tensor.device() == first.device()) continue;
    throw UsageError(
        fmt::format("batch_isend_irecv: all tensors of a batch must be on one device, got {} and {}: "
                    "make a batch for each",
                    first.device().str(), operation.tensor.device().str()));
  }
  Operation batch{.name = "batch_isend_irecv", .number = 0, .who = impl_->who, .tensor = first};
  std::vector<P2POp> ordered = operations;
  std::vector<std::function<void()>> write_backs;
  for (auto& operation : ordered) {
    const comm::InOrder in_order(operation.tensor);
    operation.tensor = in_order.tensor;
    write_backs.push_back(comm::is_receive(operation) ? in_order.write_back : nullptr);
  }
  const auto started = comm::translated([&] { return comm::start_batch(impl_->backend_of(first), ordered); },
                                        [&] { return batch.describe(); });
  std::vector<Work> works;
  works.reserve(started.size());
  for (std::size_t i = 0; i < started.size(); ++i) {
    Operation operation = batch;
    std::function<void()> finish;
    if (started.size() == operations.size()) {
      operation.tensor = operations[i].tensor;
      finish = std::move(write_backs[i]);
    } else {
      finish = [write_backs] {
        for (const auto& write_back : write_backs)
          if (write_back) write_back();
      };
    }
    operation.number = static_cast<std::int64_t>(started[i]->getSequencenumber());
    works.emplace_back(std::make_shared<Work::Impl>(started[i], std::move(operation), std::move(finish)));
  }
  return works;
}

}  // namespace lockstep
