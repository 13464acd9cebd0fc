#include "train/graphs/side_stream.hpp"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <map>
#include <mutex>

namespace lockstep::train {
namespace {

/// Always the same one, whose memory the allocator keeps for the next training. Of those with high priority:
/// the 32 others are given in turn to loaders and to exchanges between ranks, which must not be recorded.
c10::Stream side_stream_of(const at::Device& device) {
  static std::mutex mutex;
  static std::map<at::DeviceIndex, c10::Stream> streams;
  const std::lock_guard lock(mutex);
  const auto found = streams.find(device.index());
  if (found != streams.end()) return found->second;
  const c10::impl::VirtualGuardImpl guard(device.type());
  return streams.emplace(device.index(), guard.getStreamFromGlobalPool(device, /*isHighPriority=*/true))
      .first->second;
}

/// `later` waits for what `earlier` has been given.
void order(const c10::Stream& earlier, const c10::Stream& later) {
  c10::Event done(earlier.device_type());
  done.record(earlier);
  done.block(later);
}

}  // namespace

SideStream::SideStream(const at::Device& device) {
  if (!device.is_cuda()) return;
  const c10::impl::VirtualGuardImpl streams(device.type());
  const at::Device here = device.has_index() ? device : streams.getDevice();
  if (streams.getStream(here) != streams.getDefaultStream(here)) return;
  before_ = streams.getStream(here);
  side_ = side_stream_of(here);
  order(*before_, *side_);
  guard_.emplace(*side_);
}

SideStream::~SideStream() {
  if (!guard_) return;
  guard_.reset();
  try {
    order(*side_, *before_);
  } catch (const std::exception&) {
    // The device has failed, which the next call reports.
  }
}

}  // namespace lockstep::train
