#include "gloo_lane.hpp"

#include <ATen/ops/from_blob.h>

#include <optional>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "errors.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::comm {
namespace {

using shm::Dtype;
using shm::Elements;
using shm::Reduction;
using WorkPointer = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;

/// A rank that ends is noticed by its neighbours, who leave word, within half a second.
constexpr std::chrono::milliseconds kWord{1500};

at::ScalarType type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::i8:
      return at::kChar;
    case Dtype::i16:
      return at::kShort;
    case Dtype::i32:
      return at::kInt;
    case Dtype::i64:
      return at::kLong;
    case Dtype::f16:
      return at::kHalf;
    case Dtype::bf16:
      return at::kBFloat16;
    case Dtype::f32:
      return at::kFloat;
    case Dtype::f64:
      return at::kDouble;
    case Dtype::u8:
    case Dtype::boolean:
    case Dtype::bytes:
      break;
  }
  return at::kByte;
}

at::Tensor view(const void* data, Elements elements) {
  return at::from_blob(const_cast<void*>(data), {static_cast<std::int64_t>(elements.count)},
                       at::TensorOptions().dtype(type_of(elements.dtype)));
}
at::Tensor view_bytes(const void* data, std::size_t bytes) { return view(data, {bytes, Dtype::bytes}); }

c10d::ReduceOp reduce_op(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
    case Reduction::avg:  // Divided afterwards.
      return c10d::ReduceOp::SUM;
    case Reduction::product:
      return c10d::ReduceOp::PRODUCT;
    case Reduction::min:
      return c10d::ReduceOp::MIN;
    case Reduction::max:
      return c10d::ReduceOp::MAX;
    case Reduction::bit_and:
      return c10d::ReduceOp::BAND;
    case Reduction::bit_or:
      return c10d::ReduceOp::BOR;
    case Reduction::bit_xor:
      return c10d::ReduceOp::BXOR;
    case Reduction::none:
      break;
  }
  throw UsageError("this reduction cannot be done between hosts");
}

/// Of bytes of 0 and 1 a sum would be 2.
c10d::ReduceOp reduce_op(Reduction reduction, Dtype dtype) {
  if (dtype != Dtype::boolean) return reduce_op(reduction);
  const bool any =
      reduction == Reduction::sum || reduction == Reduction::max || reduction == Reduction::bit_or;
  if (any) return c10d::ReduceOp::MAX;
  return reduction == Reduction::bit_xor ? c10d::ReduceOp::BXOR : c10d::ReduceOp::MIN;
}

class GlooTransport final : public shm::InterHostTransport {
 public:
  GlooTransport(c10::intrusive_ptr<c10d::Backend> gloo, LanePlace place, FailureNote note)
      : gloo_(std::move(gloo)), place_(std::move(place)), note_(std::move(note)) {
    if (place_.compares) calls_.emplace(*gloo_, place_.names);
  }

  void announce(const shm::Call& call) override {
    call_ = shm::describe(call);
    if (calls_) run([&] { calls_->announce(call_); });
  }
  void agree() override {
    if (calls_) run([&] { calls_->agree(); });
  }

  void all_reduce(void* data, Elements elements, Reduction reduction) override {
    c10d::AllreduceOptions options;
    options.reduceOp = reduce_op(reduction, elements.dtype);
    reduced(data, elements, [&](Tensors& tensors) { gloo_->allreduce(tensors, options)->wait(); });
    divide(data, elements, reduction);
  }
  void reduce(void* data, Elements elements, Reduction reduction, int root) override {
    c10d::ReduceOptions options;
    options.reduceOp = reduce_op(reduction, elements.dtype);
    options.rootRank = root;
    reduced(data, elements, [&](Tensors& tensors) { gloo_->reduce(tensors, options)->wait(); });
    divide(data, elements, reduction);
  }
  void broadcast(void* data, std::size_t bytes, int root) override {
    c10d::BroadcastOptions options;
    options.rootRank = root;
    Tensors tensors{view_bytes(data, bytes)};
    run([&] { gloo_->broadcast(tensors, options)->wait(); });
  }
  void all_gather(const void* input, void* output, std::size_t bytes) override {
    at::Tensor from = view_bytes(input, bytes);
    at::Tensor to = view_bytes(output, bytes * static_cast<std::size_t>(gloo_->getSize()));
    run([&] { gloo_->_allgather_base(to, from)->wait(); });
  }
  void beside(const std::function<void()>& body) override {
    try {
      body();
    } catch (...) {
      explain(call_);
    }
  }
  void abandon(const char* last_words) noexcept override;

 private:
  template <class Carry>
  void reduced(void* data, Elements elements, const Carry& carry);
  void divide(void* data, Elements elements, Reduction reduction) const {
    if (reduction == Reduction::avg) view(data, elements).div_(place_.ranks);
  }
  template <class Body>
  void run(const Body& body);
  /// "rank 0 on node0, rank 2 on node1".
  std::string joined() const;
  [[noreturn]] void explain(const std::string& what);

  c10::intrusive_ptr<c10d::Backend> gloo_;
  LanePlace place_;
  FailureNote note_;
  std::string call_;                   // What was announced last.
  std::optional<CallExchange> calls_;  // None: nothing is compared.
  bool abandoned_ = false;
};

template <class Carry>
void GlooTransport::reduced(void* data, Elements elements, const Carry& carry) {
  const at::Tensor own = view(data, elements);
  const bool widened = elements.dtype == Dtype::i16;
  Tensors tensors{widened ? own.to(at::kInt) : own};
  run([&] { carry(tensors); });
  if (widened) own.copy_(tensors.front());
}

template <class Body>
void GlooTransport::run(const Body& body) {
  try {
    body();
  } catch (const Error&) {
    throw;  // The hosts do not call the same, and all know it.
  } catch (...) {
    explain(call_ + " between " + joined());
  }
}

std::string GlooTransport::joined() const {
  std::string text;
  for (const auto& rank : place_.names.callers) text += (text.empty() ? "" : ", ") + rank;
  return text;
}

void GlooTransport::explain(const std::string& what) {
  try {
    rethrow_as_communication_error(place_.names.who + ": " + what + " failed");
  } catch (const TimeoutError&) {
    throw;
  } catch (const CommunicationError& error) {
    const std::string word = note_.read(kWord);
    if (word.empty()) throw;
    throw CommunicationError(word + " [" + error.what() + "]");
  }
}

/// Word first: whoever finds the connection closed looks for it.
void GlooTransport::abandon(const char* last_words) noexcept {
  if (std::exchange(abandoned_, true)) return;
  note_.post(last_words);
  try {
    gloo_->abort();
  } catch (const std::exception&) {
    // The connections close with the process at the latest.
  }
}

}  // namespace

std::unique_ptr<shm::InterHostTransport> make_gloo_transport(c10::intrusive_ptr<c10d::Backend> gloo,
                                                             LanePlace place, FailureNote note) {
  return std::make_unique<GlooTransport>(std::move(gloo), std::move(place), std::move(note));
}

}  // namespace lockstep::comm
