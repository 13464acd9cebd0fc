#include "pre_tokenizer.hpp"

namespace lockstep::tokenizer {
namespace {

void split_each(std::string_view text, Splitter splitter, const Words& from, Words& to) {
  to.clear();
  for (const auto& word : from) {
    const auto first = to.size();
    splitter(text.substr(word.begin, word.end - word.begin), to);
    for (auto place = first; place < to.size(); ++place) {
      to[place].begin += word.begin;
      to[place].end += word.begin;
    }
  }
}

}  // namespace

PreTokenizer::PreTokenizer(const Node& node) {
  if (node.type() != "Sequence") {
    add(node);
  } else {
    for (const auto& part : node["pretokenizers"].elements()) add(part);
  }
}

PreTokenizer PreTokenizer::of(Splitter splitter) {
  PreTokenizer result;
  result.splitters_.push_back(splitter);
  return result;
}

PreTokenizer PreTokenizer::byte_level(bool add_prefix_space) {
  PreTokenizer result;
  result.byte_level_ = true;
  result.add_prefix_space_ = add_prefix_space;
  result.last_ = split_gpt2;
  return result;
}

void PreTokenizer::add(const Node& node) {
  const auto& type = node.type();
  if (byte_level_) node.fail("a pre-tokenizer ('" + type + "') behind ByteLevel is not supported");
  if (type == "BertPreTokenizer") {
    splitters_.push_back(split_bert);
  } else if (type == "Whitespace") {
    splitters_.push_back(split_words);
  } else if (type == "WhitespaceSplit") {
    splitters_.push_back(split_spaces);
  } else if (type == "Split") {
    add_split(node);
  } else if (type == "ByteLevel") {
    add_byte_level(node);
  } else {
    node.fail("the pre-tokenizer '" + type +
              "' is not supported (BertPreTokenizer, Whitespace, WhitespaceSplit, Split with a known "
              "pattern, ByteLevel and Sequence are)");
  }
}

/// The known patterns leave no character out, so that isolated matches, and the removal of all but matches,
/// are the same.
void PreTokenizer::add_split(const Node& node) {
  const auto pattern = node["pattern"];
  if (!pattern.find("Regex")) pattern.fail("the pre-tokenizer 'Split' with a fixed text is not supported");
  const auto& text = pattern["Regex"].text();
  const auto splitter = find_pattern(text);
  if (splitter == nullptr) {
    node.fail("the pre-tokenizer 'Split' with the pattern '" + text +
              "' is not supported (the patterns of GPT-2, of cl100k and Llama 3, and of Qwen 2 are)");
  }
  const auto& behavior = node["behavior"].text();
  const bool invert = node.flag("invert", false);
  if (!(behavior == "Isolated" && !invert) && !(behavior == "Removed" && invert)) {
    node.fail("the pre-tokenizer 'Split' with the behavior '" + behavior + "' and invert " +
              (invert ? "true" : "false") + " is not supported");
  }
  splitters_.push_back(splitter);
}

void PreTokenizer::add_byte_level(const Node& node) {
  byte_level_ = true;
  add_prefix_space_ = node.flag("add_prefix_space", true);
  if (node.flag("use_regex", true)) last_ = split_gpt2;
}

void PreTokenizer::split(std::string_view text, Words& words, Words& spare) const {
  words.assign(1, {0, static_cast<std::uint32_t>(text.size())});
  for (const auto splitter : splitters_) {
    split_each(text, splitter, words, spare);
    words.swap(spare);
  }
  if (last_ == nullptr || add_prefix_space_) return;
  split_each(text, last_, words, spare);
  words.swap(spare);
}

void PreTokenizer::split_prefixed(std::string_view text, Words& words) const {
  if (last_ != nullptr) return last_(text, words);
  words.push_back({0, static_cast<std::uint32_t>(text.size())});
}

}  // namespace lockstep::tokenizer
