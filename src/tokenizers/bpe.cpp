#include "model.hpp"

#include <algorithm>
#include <queue>

#include "byte_alphabet.hpp"
#include "lockstep/core/error.hpp"
#include "utf8.hpp"

namespace lockstep::tokenizer {
namespace {

/// Up to this many bytes looking at every pair for each merge is faster than a queue.
constexpr std::size_t kShort = 40;

/// Bytes that no valid UTF-8 has (RFC 3629, section 4).
bool is_never_text(unsigned byte) { return byte == 0xC0 || byte == 0xC1 || byte > 0xF4; }

[[noreturn]] void fail(const std::string& file, const std::string& what) {
  throw DataError("'" + file + "' is no byte-level BPE: " + what + ".");
}

/// A merge that may be made, unless one of its two has been merged meanwhile.
struct Candidate {
  std::uint32_t rank;
  std::uint32_t left;
  std::uint32_t left_id;
  std::uint32_t right_id;
  std::uint32_t id;
  friend bool operator>(const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  }
};

/// A long word as a list of tokens with a queue of merges: n log n.
class MergeQueue {
 public:
  MergeQueue(const MergeTable& merges, Tokens& tokens) : merges_(merges), tokens_(tokens) {
    const auto count = static_cast<std::uint32_t>(tokens.size());
    for (std::uint32_t place = 0; place < count; ++place) {
      next_.push_back(place + 1);
      previous_.push_back(place - 1);
    }
    alive_.assign(count, true);
    for (std::uint32_t place = 0; place + 1 < count; ++place) offer(place);
  }

  void run() {
    while (!queue_.empty()) {
      const auto best = queue_.top();
      queue_.pop();
      if (is_current(best)) merge(best);
    }
    std::size_t kept = 0;
    for (std::uint32_t place = 0; place < tokens_.size(); place = next_[place])
      tokens_[kept++] = tokens_[place];
    tokens_.resize(kept);
  }

 private:
  void offer(std::uint32_t left) {
    const auto right = next_[left];
    if (right >= tokens_.size()) return;
    const auto merge = merges_.find(tokens_[left].id, tokens_[right].id);
    if (merge.rank == MergeTable::kNever) return;
    queue_.push({merge.rank, left, tokens_[left].id, tokens_[right].id, merge.id});
  }

  bool is_current(const Candidate& candidate) const {
    const auto left = candidate.left;
    return alive_[left] && tokens_[left].id == candidate.left_id && next_[left] < tokens_.size() &&
           tokens_[next_[left]].id == candidate.right_id;
  }

  void merge(const Candidate& candidate) {
    const auto left = candidate.left;
    const auto right = next_[left];
    alive_[right] = false;
    tokens_[left] = {candidate.id, tokens_[right].end};
    next_[left] = next_[right];
    if (next_[left] < tokens_.size()) previous_[next_[left]] = left;
    if (left > 0) offer(previous_[left]);
    offer(left);
  }

  const MergeTable& merges_;
  Tokens& tokens_;
  std::vector<std::uint32_t> next_;
  std::vector<std::uint32_t> previous_;
  std::vector<bool> alive_;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue_;
};

}  // namespace

Bpe::Bpe(Vocabulary vocabulary, const Merges& merges, bool ignore_merges, const std::string& file)
    : vocabulary_(std::move(vocabulary)), merges_(merges.size()), ignore_merges_(ignore_merges) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::string token;
    append_utf8(token, byte_characters()[byte]);
    const auto id = vocabulary_.id(token);
    if (!id && !is_never_text(byte)) {
      fail(file, "the vocabulary has no '" + token + "', the token of the byte " + std::to_string(byte));
    }
    byte_ids_[byte] = id.value_or(0);
  }
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    merges_.add(require(left, rank, file), require(right, rank, file),
                {static_cast<std::uint32_t>(rank), require(left + right, rank, file)});
  }
  for (std::uint32_t id = 0; ignore_merges && id < vocabulary_.id_end(); ++id) {
    const auto* token = vocabulary_.token(id);
    if (token == nullptr) continue;
    if (auto bytes = bytes_of_token(*token)) words_.emplace(std::move(*bytes), id);
  }
}

std::uint32_t Bpe::require(const std::string& token, std::size_t number, const std::string& file) const {
  const auto id = vocabulary_.id(token);
  if (id) return *id;
  fail(file, "merge " + std::to_string(number) + " (from 0) needs the token '" + token.substr(0, 100) +
                 "', which the vocabulary does not have");
}

void Bpe::tokenize(std::string_view word, Tokens& tokens) const {
  tokens.clear();
  if (ignore_merges_) {
    const auto found = words_.find(std::string(word));
    if (found != words_.end()) {
      return tokens.push_back({found->second, static_cast<std::uint32_t>(word.size())});
    }
  }
  for (std::size_t place = 0; place < word.size(); ++place) {
    tokens.push_back(
        {byte_ids_[static_cast<unsigned char>(word[place])], static_cast<std::uint32_t>(place + 1)});
  }
  if (tokens.size() <= kShort) {
    merge_short(tokens);
  } else {
    merge_long(tokens);
  }
}

void Bpe::merge_short(Tokens& tokens) const {
  std::array<MergeTable::Merge, kShort> merges;
  auto count = tokens.size();
  const auto look = [&](std::size_t place) {
    merges[place] = merges_.find(tokens[place].id, tokens[place + 1].id);
  };
  for (std::size_t place = 0; place + 1 < count; ++place) look(place);
  while (count > 1) {
    auto* const end = merges.data() + count - 1;
    auto* const found = std::min_element(
        merges.data(), end, [](const auto& left, const auto& right) { return left.rank < right.rank; });
    if (found->rank == MergeTable::kNever) break;
    const auto best = static_cast<std::size_t>(found - merges.data());
    tokens[best] = {merges[best].id, tokens[best + 1].end};
    --count;
    std::copy(tokens.begin() + static_cast<std::ptrdiff_t>(best) + 2, tokens.end(),
              tokens.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    tokens.pop_back();
    for (auto place = best + 1; place + 1 < count; ++place) merges[place] = merges[place + 1];
    if (best + 1 < count) look(best);
    if (best > 0) look(best - 1);
  }
}

void Bpe::merge_long(Tokens& tokens) const { MergeQueue(merges_, tokens).run(); }

}  // namespace lockstep::tokenizer
