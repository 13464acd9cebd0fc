#include <nlohmann/json.hpp>

#include "core/json.hpp"
#include "core/json_text.hpp"
#include "datasets/dataset/dataset_access.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/datasets/column_builder.hpp"
#include "lockstep/datasets/text_files.hpp"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

/// A location in the document, and its name in errors.
class JsonLocation {
 public:
  JsonLocation(const Json& json, std::string name) : json_(json), name_(std::move(name)) {}

  JsonLocation operator[](const char* key) const {
    if (!json_.is_object()) fail("an object");
    const auto found = json_.find(key);
    const JsonLocation location(found == json_.end() ? null() : *found,
                                name_ + (name_.empty() ? "" : ".") + key);
    return location;
  }

  std::vector<JsonLocation> elements() const {
    if (!json_.is_array()) fail("a list");
    std::vector<JsonLocation> locations;
    for (std::size_t i = 0; i < json_.size(); ++i)
      locations.emplace_back(json_[i], name_ + "[" + std::to_string(i) + "]");
    return locations;
  }

  const std::string& text() const {
    if (!json_.is_string()) fail("a string");
    return json_.get_ref<const std::string&>();
  }

  /// A string, or an integer as a string.
  std::string key() const { return json_.is_number_integer() ? json_text(json_) : text(); }

  std::int32_t number() const {
    if (!json_.is_number_integer() || json_ < 0 || json_ > INT32_MAX) fail("a number of characters");
    return json_.get<std::int32_t>();
  }

  bool is_missing() const { return json_.is_null(); }

 private:
  static const Json& null() {
    static const Json nothing;
    return nothing;
  }
  [[noreturn]] void fail(const std::string& expected) const {
    throw DataError("expected SQuAD's layout with " + expected + " at " +
                    (name_.empty() ? "the top" : "'" + name_ + "'") + ", but found " +
                    (is_missing() ? "nothing" : json_.type_name()) + ".");
  }

  const Json& json_;
  std::string name_;
};

/// The columns built so far.
class Questions {
 public:
  void add(const std::string& title, const std::string& context, const JsonLocation& question) {
    id_.append(question["id"].key());
    title_.append(title);
    context_.append(context);
    question_.append(question["question"].text());
    std::vector<Value> texts, starts;
    const JsonLocation answers = question["answers"];
    for (const auto& answer : answers.is_missing() ? std::vector<JsonLocation>() : answers.elements()) {
      texts.emplace_back(answer["text"].text());
      starts.emplace_back(answer["answer_start"].number());
    }
    answers_.append(Value(Value::Fields{{"text", std::move(texts)}, {"answer_start", std::move(starts)}}));
  }

  ArrowDataset finish() {
    return ArrowDataset::from_columns({{"id", id_.finish()},
                                       {"title", title_.finish()},
                                       {"context", context_.finish()},
                                       {"question", question_.finish()},
                                       {"answers", answers_.finish()}});
  }

 private:
  static DataType text() { return DataType(TypeKind::utf8); }

  ColumnBuilder id_{text()}, title_{text()}, context_{text()}, question_{text()};
  ColumnBuilder answers_{DataType::struct_(
      {{"text", DataType::list(text())}, {"answer_start", DataType::list(DataType(TypeKind::int32))}})};
};

void add_article(Questions& questions, const JsonLocation& article) {
  const JsonLocation title = article["title"];
  for (const auto& paragraph : article["paragraphs"].elements()) {
    for (const auto& question : paragraph["qas"].elements()) {
      questions.add(title.is_missing() ? "" : title.text(), paragraph["context"].text(), question);
    }
  }
}

}  // namespace

ArrowDataset load_squad(const std::filesystem::path& path) {
  const Json document = read_json_document(path);
  Questions questions;
  try {
    for (const auto& article : JsonLocation(document, "")["data"].elements()) add_article(questions, article);
  } catch (const DataError& error) {
    throw DataError("'" + path.string() + "': " + error.what());
  }
  return with_source(questions.finish(), path);
}

}  // namespace lockstep
