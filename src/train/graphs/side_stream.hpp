#pragma once

#include <c10/core/Device.h>
#include <c10/core/StreamGuard.h>

#include <optional>

namespace lockstep::train {

/// While it exists, this thread gives its work to a stream that can be recorded, one for each device; on a CPU,
/// and if the current stream is such a one, nothing changes. What was given to the stream before is done
/// first, and so is all of this before what the stream before gets afterwards.
///
/// Must exist before a model is prepared: its gradients are added up on the stream that was current when their
/// accumulators were made, and a recording fails where that is another one.
class SideStream {
 public:
  explicit SideStream(const at::Device& device);
  ~SideStream();
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

 private:
  std::optional<c10::Stream> before_, side_;
  std::optional<c10::StreamGuard> guard_;
};

}  // namespace lockstep::train
