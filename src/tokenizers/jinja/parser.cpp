#include "tokenizers/jinja/parser.hpp"

#include <fmt/core.h>

#include <initializer_list>
#include <utility>

#include "tokenizers/jinja/expression_parser.hpp"
#include "tokenizers/jinja/token_stream.hpp"

namespace lockstep::jinja {
namespace {

using EndTags = std::initializer_list<std::string_view>;

/// Reads statements. The names of the functions are those of the tags.
class Parser {
 public:
  explicit Parser(std::string_view source) : stream_(tokens_of(source)), expressions_(stream_) {}

  Tree run() {
    Tree tree{.body = parse_body({}), .has_generation = false};
    tree.has_generation = has_generation_;
    return tree;
  }

 private:
  Statement node(StatementKind kind) const { return {.kind = kind, .line = stream_.current().line}; }

  /// Statements up to a tag that ends them, whose name is the current token then.
  Body parse_body(EndTags ends) {
    const ExpressionParser::Nested nested(expressions_);
    Body body;
    while (!stream_.at(TokenType::end)) {
      if (stream_.at(TokenType::data)) {
        auto data = node(StatementKind::data);
        data.text = stream_.take().text;
        put(body, std::move(data));
      } else if (stream_.at(TokenType::variable_begin)) {
        stream_.take();
        auto output = node(StatementKind::output);
        output.value = expressions_.parse_tuple();
        stream_.expect(TokenType::variable_end, "'}}'");
        put(body, std::move(output));
      } else {
        stream_.expect(TokenType::block_begin, "a tag");
        if (stream_.at_any_name(ends)) return body;
        parse_statement(body);
        stream_.expect(TokenType::block_end, "'%}'");
      }
    }
    if (ends.size() > 0)
      stream_.fail(fmt::format("a block is not closed: '{{% {} %}}' is missing", *(ends.end() - 1)));
    return body;
  }

  /// The body of a block, whose tag ends here.
  Body parse_block(EndTags ends) {
    stream_.skip_sign(":");
    stream_.expect(TokenType::block_end, "'%}'");
    return parse_body(ends);
  }
  Body parse_block_to(std::string_view end) {
    auto body = parse_block({end});
    stream_.take();
    return body;
  }

  static void put(Body& body, Statement statement) {
    body.push_back(std::make_unique<const Statement>(std::move(statement)));
  }

  void parse_statement(Body& body) {
    const std::string tag = stream_.expect(TokenType::name, "the name of a tag").text;
    if (tag == "if") return put(body, parse_if());
    if (tag == "for") return put(body, parse_for());
    if (tag == "set") return put(body, parse_set());
    if (tag == "with") return put(body, parse_with());
    if (tag == "macro") return put(body, parse_macro());
    if (tag == "call") return put(body, parse_call());
    if (tag == "filter") return put(body, parse_filter());
    if (tag == "generation") return put(body, parse_generation());
    if (tag == "print") return parse_print(body);
    if (tag == "break" || tag == "continue") return put(body, parse_jump(tag));
    fail_tag(tag);
  }

  [[noreturn]] void fail_tag(const std::string& tag) const {
    for (const auto* known : {"include", "import", "from", "extends", "block", "autoescape"}) {
      if (tag == known)
        stream_.fail(fmt::format("the tag '{}' is not supported: a chat template stands alone", tag));
    }
    stream_.fail(fmt::format("unknown tag '{}'", tag.substr(0, 60)));
  }

  Statement parse_if() {
    auto whole = node(StatementKind::if_block);
    while (true) {
      Branch branch;
      branch.condition = expressions_.parse_tuple(false);
      branch.body = parse_block({"elif", "else", "endif"});
      whole.branches.push_back(std::move(branch));
      const auto end = stream_.take().text;
      if (end == "elif") continue;
      if (end == "else") whole.branches.push_back({.condition = nullptr, .body = parse_block_to("endif")});
      return whole;
    }
  }

  Statement parse_for() {
    auto whole = node(StatementKind::for_block);
    whole.target = expressions_.parse_target("in");
    stream_.expect_name("in");
    whole.value = expressions_.parse_tuple(false, "recursive");
    if (stream_.skip_name("if")) whole.condition = expressions_.parse_expression();
    whole.recursive = stream_.skip_name("recursive");
    ++loops_;
    whole.body = parse_block({"else", "endfor"});
    --loops_;
    if (stream_.take().text == "else") whole.otherwise = parse_block_to("endfor");
    return whole;
  }

  Statement parse_set() {
    auto whole = node(StatementKind::set);
    whole.target = expressions_.parse_target({}, true);
    if (stream_.skip_sign("=")) {
      whole.value = expressions_.parse_tuple();
      return whole;
    }
    whole.kind = StatementKind::set_block;
    whole.value = expressions_.parse_filters(nullptr, false);
    whole.body = parse_inner("endset");
    return whole;
  }

  /// A body that is rendered for itself: loops around it do not end within it.
  Body parse_inner(std::string_view end) {
    const auto loops = std::exchange(loops_, 0);
    auto body = parse_block_to(end);
    loops_ = loops;
    return body;
  }

  Statement parse_with() {
    auto whole = node(StatementKind::with_block);
    while (!stream_.at(TokenType::block_end) && !stream_.at(TokenType::end)) {
      if (!whole.names.empty()) stream_.expect_sign(",");
      whole.names.push_back(expressions_.parse_target());
      stream_.expect_sign("=");
      whole.values.push_back(expressions_.parse_expression());
    }
    whole.body = parse_block_to("endwith");
    return whole;
  }

  void parse_signature(MacroTree& macro) {
    stream_.expect_sign("(");
    while (!stream_.at_sign(")")) {
      if (!macro.parameters.empty()) stream_.expect_sign(",");
      Parameter parameter{.name = expressions_.parse_name(), .otherwise = nullptr};
      if (stream_.skip_sign("=")) {
        parameter.otherwise = expressions_.parse_expression();
      } else if (!macro.parameters.empty() && macro.parameters.back().otherwise) {
        stream_.fail("a parameter without a default follows one with a default");
      }
      macro.parameters.push_back(std::move(parameter));
    }
    stream_.expect_sign(")");
  }

  void parse_macro_body(MacroTree& macro, std::string_view end) {
    macro.line = stream_.current().line;
    expressions_.macros().emplace_back();
    macro.body = parse_inner(end);
    const auto uses = expressions_.macros().back();
    expressions_.macros().pop_back();
    macro.uses_caller = uses.caller;
    macro.uses_kwargs = uses.kwargs;
    macro.uses_varargs = uses.varargs;
  }

  Statement parse_macro() {
    auto whole = node(StatementKind::macro);
    whole.callable.name = expressions_.parse_name();
    parse_signature(whole.callable);
    parse_macro_body(whole.callable, "endmacro");
    return whole;
  }

  Statement parse_call() {
    auto whole = node(StatementKind::call_block);
    if (stream_.at_sign("(")) parse_signature(whole.callable);
    whole.value = expressions_.parse_expression();
    if (whole.value->kind != ExpressionKind::call) stream_.fail("the tag 'call' needs the call of a macro");
    parse_macro_body(whole.callable, "endcall");
    return whole;
  }

  Statement parse_filter() {
    auto whole = node(StatementKind::filter_block);
    whole.value = expressions_.parse_filters(nullptr, true);
    whole.body = parse_inner("endfilter");
    return whole;
  }

  Statement parse_generation() {
    auto whole = node(StatementKind::generation);
    whole.body = parse_inner("endgeneration");
    has_generation_ = true;
    return whole;
  }

  void parse_print(Body& body) {
    while (!stream_.at(TokenType::block_end) && !stream_.at(TokenType::end)) {
      auto output = node(StatementKind::output);
      output.value = expressions_.parse_expression();
      put(body, std::move(output));
      if (!stream_.at(TokenType::block_end)) stream_.expect_sign(",");
    }
  }

  Statement parse_jump(const std::string& tag) const {
    if (loops_ == 0) stream_.fail(fmt::format("'{}' is outside of a loop", tag));
    return node(tag == "break" ? StatementKind::break_loop : StatementKind::continue_loop);
  }

  TokenStream stream_;
  ExpressionParser expressions_;
  int loops_ = 0;
  bool has_generation_ = false;
};

}  // namespace

Tree parse(std::string_view source) { return Parser(source).run(); }

}  // namespace lockstep::jinja
