#include "comm/transport/shared_allocation.hpp"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <mutex>

#include "comm/backend/cpu_backend.hpp"
#include "lockstep/core/error.hpp"
#include "shm/segment.hpp"

namespace lockstep::comm {
namespace {

thread_local const std::shared_ptr<shm::Heap>* current_heap = nullptr;

/// A block of a heap. It keeps the heap alive, which may outlive its group.
struct Piece {
  std::shared_ptr<shm::Heap> heap;
  void* memory;
};

void free_piece(void* context) {
  const std::unique_ptr<Piece> piece(static_cast<Piece*>(context));
  piece->heap->free(piece->memory);
}

/// LibTorch's allocator, except for large tensors created in a scope.
class SharingAllocator final : public c10::Allocator {
 public:
  explicit SharingAllocator(c10::Allocator* usual) : usual_(usual) {}

  c10::DataPtr allocate(std::size_t bytes) override {
    if (current_heap == nullptr || bytes < SharedAllocation::kSmallest) return usual_->allocate(bytes);
    try {
      if (void* const memory = (*current_heap)->allocate(bytes))
        return {memory, new Piece{*current_heap, memory}, &free_piece, at::Device(at::kCPU)};
    } catch (const CommunicationError&) {
    }
    // Shared memory is exhausted: ordinary memory works as well, only slower.
    return usual_->allocate(bytes);
  }
  bool is_simple_data_ptr(const c10::DataPtr& pointer) const override {
    return usual_->is_simple_data_ptr(pointer);
  }
  /// The usual allocator's: raw allocations do not happen in a scope.
  c10::DeleterFnPtr raw_deleter() const override { return usual_->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  c10::Allocator* usual_;
};

/// Once per process, and only if it shares memory. Never removed, because tensors may be created at any time.
void install_allocator() {
  static std::once_flag once;
  std::call_once(once, [] { c10::SetAllocator(at::kCPU, new SharingAllocator(c10::GetCPUAllocator())); });
}

}  // namespace

SharedAllocation::SharedAllocation(const ProcessGroup& group)
    : heap_(shared_heap_of(*group.c10d_process_group())), outer_(current_heap) {
  if (!heap_) return;
  install_allocator();
  current_heap = &heap_;
}

SharedAllocation::~SharedAllocation() { current_heap = outer_; }

}  // namespace lockstep::comm
