#include "train/mlflow/http_client.hpp"

#include <curl/curl.h>
#include <fmt/core.h>

#include <array>
#include <mutex>

namespace lockstep::mlflow {
namespace {

constexpr std::size_t kLongestAnswer = 64U << 20U;
constexpr long kConnectSeconds = 10;
constexpr long kRequestSeconds = 60;

std::size_t take_answer(char* bytes, std::size_t size, std::size_t count, void* into) {
  auto& body = *static_cast<std::string*>(into);
  if (body.size() + size * count > kLongestAnswer) return 0;
  body.append(bytes, size * count);
  return size * count;
}

int stop_if_aborted(void* flag, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<const std::atomic<bool>*>(flag)->load() ? 1 : 0;
}

/// Whether nothing of the request was sent.
bool was_not_sent(CURLcode code) {
  return code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY ||
         code == CURLE_COULDNT_CONNECT || code == CURLE_SSL_CONNECT_ERROR ||
         code == CURLE_PEER_FAILED_VERIFICATION;
}

}  // namespace

struct HttpClient::Handle {
  Handle() {
    static std::once_flag once;
    std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
    curl = curl_easy_init();
    if (curl == nullptr) throw Error("libcurl cannot be used: curl_easy_init failed.");
  }
  ~Handle() {
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  template <class Value>
  void set(CURLoption option, Value value) {
    if (const CURLcode code = curl_easy_setopt(curl, option, value); code != CURLE_OK)
      throw Error(fmt::format("libcurl refuses an option: {}.", curl_easy_strerror(code)));
  }

  CURL* curl = nullptr;
  curl_slist* headers = nullptr;
  std::array<char, CURL_ERROR_SIZE> reason{};
};

HttpClient::HttpClient(const MlflowOptions& options)
    : server_(options.tracking_uri), handle_(std::make_unique<Handle>()) {
  while (server_.ends_with('/')) server_.pop_back();
  Handle& handle = *handle_;
  handle.headers = curl_slist_append(handle.headers, "Content-Type: application/json");
  // No pause before the body of a POST.
  handle.headers = curl_slist_append(handle.headers, "Expect:");
  if (!options.token.empty()) {
    const std::string line = "Authorization: Bearer " + options.token;
    handle.headers = curl_slist_append(handle.headers, line.c_str());
  } else if (!options.username.empty()) {
    handle.set(CURLOPT_HTTPAUTH, long{CURLAUTH_BASIC});
    handle.set(CURLOPT_USERNAME, options.username.c_str());
    handle.set(CURLOPT_PASSWORD, options.password.c_str());
  }
  handle.set(CURLOPT_HTTPHEADER, handle.headers);
  handle.set(CURLOPT_ERRORBUFFER, handle.reason.data());
  handle.set(CURLOPT_NOSIGNAL, 1L);
  // On a kept connection that the server closed, libcurl would send a request again by itself, done or not.
  handle.set(CURLOPT_FORBID_REUSE, 1L);
  handle.set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  handle.set(CURLOPT_TIMEOUT, kRequestSeconds);
  handle.set(CURLOPT_WRITEFUNCTION, &take_answer);
  handle.set(CURLOPT_NOPROGRESS, 0L);
  handle.set(CURLOPT_XFERINFOFUNCTION, &stop_if_aborted);
  handle.set(CURLOPT_XFERINFODATA, static_cast<void*>(&is_aborted_));
  if (!options.server_certificates.empty()) handle.set(CURLOPT_CAINFO, options.server_certificates.c_str());
  if (options.insecure_tls) {
    handle.set(CURLOPT_SSL_VERIFYPEER, 0L);
    handle.set(CURLOPT_SSL_VERIFYHOST, 0L);
  }
}

HttpClient::~HttpClient() = default;

HttpAnswer HttpClient::ask(const std::string& path_and_query, const std::string* body) {
  HttpAnswer answer;
  Handle& handle = *handle_;
  const std::string url = server_ + path_and_query;
  handle.reason.fill('\0');
  handle.set(CURLOPT_URL, url.c_str());
  handle.set(CURLOPT_WRITEDATA, static_cast<void*>(&answer.body));
  if (body == nullptr) {
    handle.set(CURLOPT_HTTPGET, 1L);
  } else {
    handle.set(CURLOPT_POST, 1L);
    handle.set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body->size()));
    handle.set(CURLOPT_POSTFIELDS, body->c_str());
  }
  const CURLcode code = curl_easy_perform(handle.curl);
  if (code != CURLE_OK) {
    const std::string reason = handle.reason[0] != '\0' ? handle.reason.data() : curl_easy_strerror(code);
    throw NoAnswer(reason, !was_not_sent(code));
  }
  curl_easy_getinfo(handle.curl, CURLINFO_RESPONSE_CODE, &answer.status);
  return answer;
}

std::string HttpClient::escaped(const std::string& text) const {
  const std::unique_ptr<char, decltype(&curl_free)> result(
      curl_easy_escape(handle_->curl, text.data(), static_cast<int>(text.size())), &curl_free);
  if (!result) throw Error("libcurl has no memory for a query.");
  return result.get();
}

}  // namespace lockstep::mlflow
