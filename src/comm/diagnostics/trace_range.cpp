#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "comm/cuda/plugin.hpp"
#include "comm/diagnostics/span_log.hpp"
#include "lockstep/comm/trace.hpp"

namespace lockstep::trace {

Range::Range(std::string name) : name_(std::move(name)), begin_(comm::monotonic_now()) {
  const comm::CudaPlugin* const plugin = comm::loaded_cuda_plugin();
  in_nvtx_ = plugin != nullptr;
  if (in_nvtx_) plugin->begin_range(name_.c_str());
}

Range::~Range() {
  if (in_nvtx_) comm::loaded_cuda_plugin()->end_range();
  comm::process_spans().add({std::move(name_), begin_, comm::monotonic_now(), syscall(SYS_gettid)});
}

}  // namespace lockstep::trace
