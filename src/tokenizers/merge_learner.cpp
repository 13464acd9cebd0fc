#include "tokenizers/merge_learner.hpp"

#include <algorithm>
#include <limits>
#include <queue>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "tokenizers/utf8.hpp"

namespace lockstep::tokenizer {
namespace {

/// A token in a word, and its length in characters.
struct Symbol {
  std::uint32_t id;
  std::uint32_t length;
};

using Pair = std::uint64_t;
constexpr Pair pair_of(std::uint32_t left, std::uint32_t right) { return Pair{left} << 32U | right; }
constexpr std::uint32_t left_of(Pair pair) { return static_cast<std::uint32_t>(pair >> 32U); }
constexpr std::uint32_t right_of(Pair pair) { return static_cast<std::uint32_t>(pair); }

/// A pair with its count when it was pushed to the queue, and the words that may contain it.
struct FrequentPair {
  std::int64_t count;
  Pair pair;
  std::vector<std::uint32_t> words;

  /// Orders by frequency; of equally frequent pairs, the one with the lowest ids is the greatest.
  friend bool operator<(const FrequentPair& one, const FrequentPair& other) {
    return std::tie(one.count, other.pair) < std::tie(other.count, one.pair);
  }
};

class Learner {
 public:
  Learner(const std::vector<CountedWord>& words, const TrainerOptions& options)
      : options_(options),
        longest_(options.max_token_length.value_or(std::numeric_limits<std::size_t>::max())) {
    for (const auto& token : options.special_tokens) id_of(token);
    add_alphabet(words);
    for (const auto& [text, count] : words) add_word(text, static_cast<std::int64_t>(count));
  }

  LearntMerges learn() {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> merges;
    for (std::uint32_t word = 0; word < words_.size(); ++word) {
      const auto& symbols = words_[word];
      for (std::size_t i = 1; i < symbols.size(); ++i)
        change(pair_of(symbols[i - 1].id, symbols[i].id), counts_[word], word);
    }
    put_new_pairs();
    while (tokens_.size() < options_.vocab_size && !queue_.empty()) {
      FrequentPair top = std::move(const_cast<FrequentPair&>(queue_.top()));
      queue_.pop();
      if (const auto now = pairs_.at(top.pair).count; now != top.count) {
        top.count = now;
        queue_.push(std::move(top));
        continue;
      }
      if (top.count < 1 || static_cast<std::uint64_t>(top.count) < options_.min_frequency) break;
      const auto id = id_of(join_pair(top.pair));
      merges.emplace_back(left_of(top.pair), right_of(top.pair));
      for (const auto word : top.words) merge(word, top.pair, id);
      put_new_pairs();
    }
    return {.tokens = std::move(tokens_), .merges = std::move(merges)};
  }

 private:
  struct PairState {
    std::int64_t count = 0;
    /// Words that contain the pair, added since it was last pushed to the queue.
    std::vector<std::uint32_t> new_words = {};
  };

  std::uint32_t id_of(const std::string& token) {
    const auto [entry, is_new] = ids_.try_emplace(token, static_cast<std::uint32_t>(tokens_.size()));
    if (is_new) tokens_.push_back(token);
    return entry->second;
  }

  void add_alphabet(const std::vector<CountedWord>& words) {
    std::unordered_map<char32_t, std::uint64_t> counts;
    for (const auto& [text, count] : words)
      for (std::size_t position = 0; position < text.size();) counts[next_character(text, position)] += count;
    for (const auto& text : options_.initial_alphabet) {
      std::size_t position = 0;
      if (!text.empty()) counts[next_character(text, position)] = std::numeric_limits<std::uint64_t>::max();
    }
    std::vector<std::pair<char32_t, std::uint64_t>> kept(counts.begin(), counts.end());
    if (options_.limit_alphabet && kept.size() > *options_.limit_alphabet) {
      // Of equally frequent characters, those with lower code points are kept.
      std::sort(kept.begin(), kept.end(), [](const auto& one, const auto& other) {
        return std::tie(other.second, one.first) < std::tie(one.second, other.first);
      });
      kept.resize(*options_.limit_alphabet);
    }
    std::sort(kept.begin(), kept.end());
    for (const auto& [code, count] : kept) {
      std::string text;
      append_utf8(text, code);
      id_of(text);
    }
  }

  /// Skips characters that are not in the alphabet.
  void add_word(std::string_view text, std::int64_t count) {
    std::vector<Symbol> symbols;
    for (std::size_t position = 0; position < text.size();) {
      const bool is_first = position == 0;
      const auto begin = position;
      next_character(text, position);
      std::string token(text.substr(begin, position - begin));
      if (!ids_.contains(token)) continue;
      if (!is_first && options_.continuing_subword_prefix)
        token = *options_.continuing_subword_prefix + token;
      if (position == text.size() && options_.end_of_word_suffix) token += *options_.end_of_word_suffix;
      symbols.push_back({id_of(token), 1});
    }
    words_.push_back(std::move(symbols));
    counts_.push_back(count);
  }

  std::string join_pair(Pair pair) const {
    std::string_view right = tokens_[right_of(pair)];
    if (const auto& prefix = options_.continuing_subword_prefix; prefix && right.starts_with(*prefix))
      right.remove_prefix(prefix->size());
    return tokens_[left_of(pair)] + std::string(right);
  }

  void change(Pair pair, std::int64_t count, std::uint32_t word) {
    auto& state = pairs_[pair];
    state.count += count;
    if (count < 0) return;
    if (state.new_words.empty()) new_pairs_.push_back(pair);
    // Changes of one word are consecutive.
    if (state.new_words.empty() || state.new_words.back() != word) state.new_words.push_back(word);
  }

  void put_new_pairs() {
    for (const auto pair : new_pairs_) {
      auto& state = pairs_[pair];
      if (state.count > 0) queue_.push({state.count, pair, std::move(state.new_words)});
      state.new_words = {};
    }
    new_pairs_.clear();
  }

  void merge(std::uint32_t word, Pair pair, std::uint32_t id) {
    auto& symbols = words_[word];
    const auto count = counts_[word];
    std::size_t kept = 0;
    for (std::size_t i = 0; i < symbols.size(); ++i) {
      const Symbol first = symbols[i];
      const bool found =
          first.id == left_of(pair) && i + 1 < symbols.size() && symbols[i + 1].id == right_of(pair);
      if (!found) {
        symbols[kept++] = first;
        continue;
      }
      const Symbol second = symbols[++i];
      const Symbol whole{id, first.length + second.length};
      if (kept > 0) {
        const Symbol before = symbols[kept - 1];
        change(pair_of(before.id, first.id), -count, word);
        if (before.length + whole.length < longest_) change(pair_of(before.id, id), count, word);
      }
      if (i + 1 < symbols.size()) {
        const Symbol after = symbols[i + 1];
        change(pair_of(second.id, after.id), -count, word);
        if (after.length + whole.length < longest_) change(pair_of(id, after.id), count, word);
      }
      symbols[kept++] = whole;
    }
    symbols.resize(kept);
  }

  const TrainerOptions& options_;
  std::size_t longest_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, std::uint32_t> ids_;
  std::vector<std::vector<Symbol>> words_;
  std::vector<std::int64_t> counts_;
  std::unordered_map<Pair, PairState> pairs_;
  std::vector<Pair> new_pairs_;
  std::priority_queue<FrequentPair> queue_;
};

}  // namespace

LearntMerges learn_merges(const std::vector<CountedWord>& words, const TrainerOptions& options) {
  return Learner(words, options).learn();
}

}  // namespace lockstep::tokenizer
