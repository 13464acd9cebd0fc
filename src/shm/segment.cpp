#include "shm/segment.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep::shm {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

/// Segments of ranks that are threads of this process.
struct OwnSegments {
  std::mutex mutex;
  std::map<std::uint64_t, std::weak_ptr<Segment>> by_token;
};

OwnSegments& own_segments() {
  static OwnSegments segments;
  return segments;
}

net::FileDescriptor make_sealed(std::size_t size) {
  net::FileDescriptor descriptor(memfd_create("lockstep", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!descriptor) throw_system_error("cannot make shared memory (memfd_create)");
  if (ftruncate(descriptor.get(), static_cast<off_t>(size)) != 0 ||
      fcntl(descriptor.get(), F_ADD_SEALS, kSeals) != 0) {
    throw_system_error(fmt::format("cannot make shared memory of {} bytes", size));
  }
  return descriptor;
}

}  // namespace

void throw_system_error(const std::string& what) {
  throw CommunicationError(what + ": " + std::system_category().message(errno));
}

std::size_t whole_pages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

void fill_random(void* bytes, std::size_t count) {
  // Up to 256 bytes come at once, whatever signals arrive.
  if (getrandom(bytes, count, 0) != static_cast<ssize_t>(count))
    throw_system_error("cannot get random bytes");
}

std::shared_ptr<Segment> Segment::create(std::size_t size) {
  std::uint64_t token = 0;
  fill_random(&token, sizeof(token));
  std::shared_ptr<Segment> segment(new Segment(make_sealed(size), size, token | 1U));
  auto& own = own_segments();
  const std::lock_guard lock(own.mutex);
  own.by_token[segment->token_] = segment;
  return segment;
}

std::shared_ptr<Segment> Segment::open(net::FileDescriptor descriptor, std::size_t size) {
  struct stat facts {};
  if (fstat(descriptor.get(), &facts) != 0) throw_system_error("cannot look at a peer's shared memory");
  const bool sealed = (fcntl(descriptor.get(), F_GET_SEALS) & kSeals) == kSeals;
  if (!sealed || static_cast<std::size_t>(facts.st_size) != size) {
    throw CommunicationError(
        fmt::format("a peer's shared memory is not what it says: expected {} sealed bytes, but it has {}{}",
                    size, facts.st_size, sealed ? "" : " and no seals"));
  }
  std::shared_ptr<Segment> segment(new Segment(std::move(descriptor), size, 0));
  segment->descriptor_.reset();
  return segment;
}

std::shared_ptr<Segment> Segment::of_this_process(std::uint64_t token) {
  auto& own = own_segments();
  const std::lock_guard lock(own.mutex);
  const auto found = own.by_token.find(token);
  return found == own.by_token.end() ? nullptr : found->second.lock();
}

Segment::Segment(net::FileDescriptor descriptor, std::size_t size, std::uint64_t token)
    : descriptor_(std::move(descriptor)), size_(size), token_(token) {
  void* where =
      mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor_.get(), 0);
  if (where == MAP_FAILED) throw_system_error(fmt::format("cannot map shared memory of {} bytes", size_));
  base_ = static_cast<std::byte*>(where);
}

Segment::~Segment() {
  munmap(base_, size_);
  if (token_ == 0) return;
  auto& own = own_segments();
  const std::lock_guard lock(own.mutex);
  own.by_token.erase(token_);
}

void Segment::reserve(std::size_t offset, std::size_t bytes) const {
  for (;;) {
    if (fallocate(descriptor_.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0) return;
    if (errno != EINTR) break;
  }
  throw_system_error(fmt::format("cannot take {} bytes of shared memory", bytes));
}

void Segment::release(std::size_t offset, std::size_t bytes) const noexcept {
  const int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  static_cast<void>(
      fallocate(descriptor_.get(), mode, static_cast<off_t>(offset), static_cast<off_t>(bytes)));
}

}  // namespace lockstep::shm
