#pragma once

#include <cstdint>
#include <map>
#include <tuple>

namespace lockstep::kernels {

/// Changes when answers about kernels may change: when tests replace the device, and when an operation turns
/// out not to do what it should.
std::uint64_t answers_version() noexcept;
void forget_answers() noexcept;

/// What a call site asks about kernels in each call, such as for an instance of a template: the first time by
/// names that are made as text and looked up under a lock, and then remembered, by each thread for itself. An
/// answer that is false or null is asked for again, since a kernel is not loaded while a graph is recorded.
///
///     thread_local Remembered<const CudaKernel*, int, at::ScalarType> known;
///     return known.get({device.index(), dtype}, [&] { return find_kernel(...); });
template <class Answer, class... Key>
class Remembered {
 public:
  template <class Ask>
  Answer get(const std::tuple<Key...>& key, const Ask& ask) {
    if (version_ != answers_version()) {
      known_.clear();
      version_ = answers_version();
    }
    if (const auto found = known_.find(key); found != known_.end()) return found->second;
    const std::uint64_t before = version_;
    const Answer answer = ask();
    if (answer && before == answers_version()) known_.emplace(key, answer);
    return answer;
  }

 private:
  std::map<std::tuple<Key...>, Answer> known_;
  std::uint64_t version_ = 0;
};

}  // namespace lockstep::kernels
