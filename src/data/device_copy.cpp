#include "data/device_copy.hpp"

#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "lockstep/comm/cuda.hpp"

namespace lockstep {

/// Marks the end of a copy.
struct PrefetchedBatch::Copied {
  at::Device device;
  c10::Event event;
};

/// The stream on which copies run.
struct DeviceCopy::CopyStream {
  c10::Stream stream;
};

Batch PrefetchedBatch::receive() && {
  if (!copied_) return std::move(batch_);
  const c10::impl::VirtualGuardImpl streams(copied_->device.type());
  const auto current = streams.getStream(copied_->device);
  copied_->event.block(current);
  for (const auto& [name, tensor] : batch_.items()) {
    // The memory belongs to the copy stream: it must not be reused before the current stream has finished
    // with it.
    if (tensor.defined()) tensor.record_stream(current);
  }
  return std::move(batch_);
}

DeviceCopy::DeviceCopy(at::Device device, bool pin, bool beside) : device_(device) {
  if (!pin && !device.is_cuda()) return;
  if (cuda_device_count() == 0) return;
  const c10::impl::VirtualGuardImpl streams(at::kCUDA);
  if (device.is_cuda() && !device_.has_index()) device_ = streams.getDevice();
  context_ = device.is_cuda() ? device_ : streams.getDevice();
  beside = beside && device.is_cuda();
  pin_ = pin || beside;
  if (!beside) return;
  copy_stream_ = std::make_shared<const CopyStream>(CopyStream{streams.getStreamFromGlobalPool(device_)});
}

PrefetchedBatch DeviceCopy::send(Batch batch) const {
  // New threads use device 0, where pinning would otherwise create a CUDA context for every rank.
  const c10::OptionalDeviceGuard context(context_);
  if (pin_) batch = batch.pin_memory();
  if (!copy_stream_) return PrefetchedBatch(std::move(batch));
  const c10::StreamGuard guard(copy_stream_->stream);
  PrefetchedBatch arriving(batch.to(device_, /*non_blocking=*/true));
  arriving.copied_ =
      std::make_shared<PrefetchedBatch::Copied>(PrefetchedBatch::Copied{device_, c10::Event(device_.type())});
  arriving.copied_->event.record(copy_stream_->stream);
  return arriving;
}

/// With pinned memory the host need not wait: later work on the current stream runs after the copy, and the
/// pinned memory is kept until then.
Batch DeviceCopy::finish(PrefetchedBatch arriving) const {
  return std::move(arriving).receive().to(device_, /*non_blocking=*/pin_ && device_.is_cuda());
}

}  // namespace lockstep
