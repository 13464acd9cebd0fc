#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "lockstep/core/error.hpp"
#include "lockstep/train/mlflow_tracker.hpp"

namespace lockstep::mlflow {

/// No answer came.
class NoAnswer : public CommunicationError {
 public:
  NoAnswer(const std::string& text, bool may_have_arrived)
      : CommunicationError(text), may_have_arrived_(may_have_arrived) {}
  /// Whether the server may have got the request all the same.
  bool may_have_arrived() const noexcept { return may_have_arrived_; }

 private:
  bool may_have_arrived_;
};

struct HttpAnswer {
  long status = 0;
  std::string body;
};

/// Requests to one server by libcurl, each over a connection of its own, and each sent once. One thread at a
/// time, but for abort(). *Local*.
class HttpClient {
 public:
  explicit HttpClient(const MlflowOptions& options);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// `path_and_query` begins with '/'. With a body of JSON it is a POST. Redirections are not followed.
  /// Throws NoAnswer with libcurl's reason, also for answers above 64 MiB.
  HttpAnswer ask(const std::string& path_and_query, const std::string* body = nullptr);
  /// A text for a query, with %-escapes.
  std::string escaped(const std::string& text) const;
  /// Ends the request that is running and all later ones. Any thread.
  void abort() noexcept { is_aborted_ = true; }

 private:
  struct Handle;

  std::string server_;
  std::unique_ptr<Handle> handle_;
  std::atomic<bool> is_aborted_{false};
};

}  // namespace lockstep::mlflow
