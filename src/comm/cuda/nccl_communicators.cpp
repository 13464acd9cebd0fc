#include "comm/cuda/nccl_communicators.hpp"

#include <fmt/core.h>

#include <exception>
#include <iostream>
#include <utility>

#include "comm/c10d_handles.hpp"

namespace lockstep::comm {
namespace {

void abort_quietly(const NcclCommunicators::Backend& backend) noexcept {
  try {
    backend->abort();
  } catch (const std::exception&) {
    // Another failure is already being reported.
  }
}

using Bytes = std::vector<std::uint8_t>;
using Keys = std::vector<std::string>;

class RootedStore final : public c10d::Store {
 public:
  explicit RootedStore(c10::intrusive_ptr<c10d::Store> inner) : inner_(std::move(inner)) {}

  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::make_intrusive<RootedStore>(inner_->clone());
  }
  void set(const std::string& key, const Bytes& value) override { inner_->set(key, value); }
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) override {
    return inner_->compareSet(key, expected, desired);
  }
  Bytes get(const std::string& key) override { return inner_->get(key); }
  std::int64_t add(const std::string& key, std::int64_t value) override { return inner_->add(key, value); }
  bool deleteKey(const std::string& key) override { return inner_->deleteKey(key); }
  bool check(const Keys& keys) override { return inner_->check(keys); }
  std::int64_t getNumKeys() override { return inner_->getNumKeys(); }
  void wait(const Keys& keys) override { inner_->wait(keys); }
  void wait(const Keys& keys, const std::chrono::milliseconds& timeout) override {
    inner_->wait(keys, timeout);
  }
  const std::chrono::milliseconds& getTimeout() const noexcept override { return inner_->getTimeout(); }
  void setTimeout(const std::chrono::milliseconds& timeout) override { inner_->setTimeout(timeout); }
  void append(const std::string& key, const Bytes& value) override { inner_->append(key, value); }
  std::vector<Bytes> multiGet(const Keys& keys) override { return inner_->multiGet(keys); }
  void multiSet(const Keys& keys, const std::vector<Bytes>& values) override {
    inner_->multiSet(keys, values);
  }
  bool hasExtendedApi() const override { return inner_->hasExtendedApi(); }

 private:
  c10::intrusive_ptr<c10d::Store> inner_;
};

}  // namespace

NcclCommunicators::~NcclCommunicators() {
  if (std::uncaught_exceptions() > 0 || !end_.meet) abort_all();
  if (backends_.empty()) return;
  try {
    end_.synchronize();
    end_.meet();
    for (; !backends_.empty(); backends_.pop_back()) backends_.back()->shutdown();
    end_.meet();
  } catch (const std::exception& error) {
    std::cerr << fmt::format("lockstep: warning: {}: NCCL communicators did not shut down cleanly: {}\n",
                             end_.who, error.what())
              << std::flush;
    abort_all();
  }
}

void NcclCommunicators::abort(const Backend& backend) noexcept {
  if (std::erase(backends_, backend) > 0) abort_quietly(backend);
}

void NcclCommunicators::abort_all() noexcept {
  for (; !backends_.empty(); backends_.pop_back()) abort_quietly(backends_.back());
}

c10::intrusive_ptr<c10d::Store> rooted(const Store& store) {
  return c10::make_intrusive<RootedStore>(to_intrusive(store.c10d_store()));
}

}  // namespace lockstep::comm
