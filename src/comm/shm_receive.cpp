#include "shm_receive.hpp"

#include <string>

namespace lockstep::comm {

Receives::Handle Receives::add(const at::Tensor& tensor, shm::Elements elements, int source, int tag) {
  auto request = std::make_shared<Request>(Request{tensor, elements, source, tag, false, -1, nullptr});
  const std::lock_guard lock(mutex_);
  pending_.push_back(request);
  return request;
}

void Receives::take(Request& request) {
  try {
    const auto from = group_->p2p_queue().try_receive(request.source, request.tag, request.tensor.data_ptr(),
                                                      request.elements);
    if (!from) return;
    request.from = *from;
  } catch (...) {
    request.failure = std::current_exception();
  }
  request.done = true;
}

bool Receives::progress(const Handle& request) {
  const std::lock_guard lock(mutex_);
  for (auto next = pending_.begin(); !request->done && next != pending_.end();) {
    take(**next);
    next = (*next)->done ? pending_.erase(next) : std::next(next);
  }
  return request->done;
}

void Receives::wait(const Handle& request) {
  const auto what = [&] {
    const std::string from =
        request->source < 0 ? "recv from any rank" : "recv from member " + std::to_string(request->source);
    return from + ", tag " + std::to_string(request->tag);
  };
  if (!progress(request))
    group_->p2p_queue().wait_for_message(
        request->source, [&] { return progress(request); }, what);
  if (request->failure) std::rethrow_exception(request->failure);
}

}  // namespace lockstep::comm
