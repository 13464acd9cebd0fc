#include "net/handshake.hpp"

#include <algorithm>
#include <utility>

#include "net/sha256.hpp"
#include "net/store_protocol.hpp"

namespace lockstep::net {
namespace {

std::string proof_of(std::string_view side, const Challenges& challenges, std::string_view secret) {
  std::string message(side);
  message += static_cast<char>(challenges.purpose);
  return hmac_sha256(secret, message + challenges.server + challenges.client);
}

std::uint32_t nonce_in(std::string_view greeting) {
  return static_cast<std::uint32_t>(read_number(greeting.substr(kGreetingBytes - 4)));
}

}  // namespace

std::uint32_t handshake_nonce(Purpose purpose) {
  return static_cast<std::uint32_t>(read_number(std::string("LKS") + static_cast<char>(purpose)));
}

std::string Challenges::client_proof(std::string_view secret) const {
  return proof_of("lockstep client 1 ", *this, secret);
}

std::string Challenges::server_proof(std::string_view secret) const {
  return proof_of("lockstep server 1 ", *this, secret);
}

bool ServerHandshake::fill(std::string_view& bytes, std::size_t count) {
  const std::size_t taken = std::min(count - bytes_.size(), bytes.size());
  bytes_.append(bytes.substr(0, taken));
  bytes.remove_prefix(taken);
  return bytes_.size() == count;
}

ServerHandshake::Verdict ServerHandshake::receive(std::string_view& bytes) {
  const bool greeted = !challenges_.server.empty();
  if (!fill(bytes, greeted ? kChallengeBytes + kProofBytes : kGreetingBytes)) {
    // What cannot become a greeting need not be waited for.
    return greeted || greeting(0).starts_with(bytes_.substr(0, kGreetingBytes - 4)) ? Verdict::undecided
                                                                                    : Verdict::refused;
  }
  return greeted ? judge() : greet();
}

ServerHandshake::Verdict ServerHandshake::greet() {
  const std::string first = std::exchange(bytes_, {});
  const std::uint32_t nonce = nonce_in(first);
  if (first != greeting(nonce)) return Verdict::refused;
  for (const Purpose purpose : {Purpose::control, Purpose::store}) {
    if (nonce != handshake_nonce(purpose) || secret_.empty()) continue;
    challenges_ = {purpose, random_bytes(kChallengeBytes), ""};
    answer_ = std::string(kServerMark) + kHandshakeVersion + challenges_.server;
    return Verdict::undecided;
  }
  answer_ = first.substr(kGreetingBytes - 4);
  return Verdict::plain;
}

ServerHandshake::Verdict ServerHandshake::judge() {
  challenges_.client = bytes_.substr(0, kChallengeBytes);
  if (!equal_in_constant_time(bytes_.substr(kChallengeBytes), challenges_.client_proof(secret_))) {
    answer_ = std::string(1, kRefused) + "the secret is another one\n";
    return Verdict::wrong_secret;
  }
  answer_ = kAccepted + challenges_.server_proof(secret_);
  return challenges_.purpose == Purpose::control ? Verdict::control : Verdict::store;
}

std::string ServerHandshake::take_answer() { return std::exchange(answer_, {}); }

}  // namespace lockstep::net
