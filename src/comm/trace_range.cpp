#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "lockstep/comm/trace.hpp"
#include "span_log.hpp"

namespace lockstep::trace {

Range::Range(std::string name) : name_(std::move(name)), begin_(comm::monotonic_now()) {}

Range::~Range() {
  comm::process_spans().add({std::move(name_), begin_, comm::monotonic_now(), syscall(SYS_gettid)});
}

}  // namespace lockstep::trace
