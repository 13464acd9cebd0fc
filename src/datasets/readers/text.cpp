#include <arrow/array/array_base.h>
#include <fmt/core.h>

#include <exception>

#include "core/utf8_check.hpp"
#include "datasets/arrow/mapped_file.hpp"
#include "datasets/readers/readers.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::readers {
namespace {

class TextRows final : public RowSource {
 public:
  TextRows(const TextFile& file, bool keep_linebreaks)
      : file_(file.path),
        name_(file.name),
        take_bad_(file.take_bad),
        keep_linebreaks_(keep_linebreaks),
        pieces_(features_) {}

  const Features& features() const override { return features_; }

  std::vector<ArrayPointer> next() override {
    const auto text = file_.text();
    while (position_ < text.size() && !pieces_.is_full() && !failure_) {
      const auto end = line_end();
      ++line_;
      add(text.substr(position_, end - position_), end < text.size());
      position_ = end + (text.substr(end).starts_with("\r\n") ? 2 : 1);
    }
    auto arrays = pieces_.take();
    // The lines before what cannot be read come first.
    if (arrays.empty() && failure_) std::rethrow_exception(failure_);
    return arrays;
  }

 private:
  /// The end of the current line: "\n", "\r\n" or "\r", as in Python.
  std::size_t line_end() {
    const auto text = file_.text();
    if (position_ == 0 || newline_ < position_) newline_ = std::min(text.find('\n', position_), text.size());
    return std::min(text.substr(0, newline_).find('\r', position_), newline_);
  }

  void add(std::string_view line, bool has_end) {
    if (first_not_utf8(line) != std::string_view::npos) return add_bad();
    if (keep_linebreaks_ && has_end) {
      pieces_.column(0).append(std::string(line) + '\n');
    } else {
      pieces_.column(0).append(line);
    }
  }

  void add_bad() {
    const DataError error(fmt::format("'{}': line {} is not UTF-8 text.", name_, line_));
    if (take_bad_) {
      take_bad_(line_, error.what());
    } else {
      failure_ = std::make_exception_ptr(error);
    }
  }

  arrow_file::MappedFile file_;
  std::string name_;
  TakeBadLine take_bad_;
  bool keep_linebreaks_;
  Features features_{{{"text", Feature(DataType(TypeKind::utf8))}}};
  PieceBuilder pieces_;
  std::size_t position_ = 0;
  /// The first "\n" from position_ on.
  std::size_t newline_ = 0;
  std::int64_t line_ = 0;
  std::exception_ptr failure_;
};

}  // namespace

std::unique_ptr<RowSource> text_rows(const TextFile& file, bool keep_linebreaks) {
  return std::make_unique<TextRows>(file, keep_linebreaks);
}

}  // namespace lockstep::readers
