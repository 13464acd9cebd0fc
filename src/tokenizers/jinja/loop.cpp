#include "tokenizers/jinja/loop.hpp"

#include "tokenizers/jinja/comparison.hpp"

namespace lockstep::jinja {

std::optional<Value> loop_attribute(Budget& budget, const Value& loop, const std::string& name) {
  const auto& own = loop.as<LoopObject>();
  const auto number = [](std::size_t count) { return Value::of(static_cast<std::int64_t>(count)); };
  const auto left = own.length - own.index0;
  if (name == "index") return number(own.index0 + 1);
  if (name == "index0") return number(own.index0);
  if (name == "first") return Value::of(own.index0 == 0);
  if (name == "last") return Value::of(left <= 1);
  if (name == "length") return number(own.length);
  if (name == "revindex") return number(left);
  if (name == "revindex0") return number(left == 0 ? 0 : left - 1);
  if (name == "depth") return number(own.depth0 + 1);
  if (name == "depth0") return number(own.depth0);
  if (name == "previtem") {
    if (own.index0 == 0 || own.index0 > own.items.size())
      return Value::undefined(budget, "there is no previous item.");
    return own.items[own.index0 - 1];
  }
  if (name == "nextitem") {
    if (own.index0 + 1 >= own.items.size()) return Value::undefined(budget, "there is no next item.");
    return own.items[own.index0 + 1];
  }
  if (name != "cycle" && name != "changed") return std::nullopt;
  auto method = std::make_shared<MethodObject>();
  method->self = loop;
  method->name = name;
  return Value::of(Kind::method, std::move(method));
}

Value call_loop_method(Budget& budget, const Value& loop, const std::string& name,
                       const Arguments& arguments) {
  const auto& own = loop.as<LoopObject>();
  if (!arguments.named.empty()) fail("loop." + name + "() takes no named arguments.");
  const auto& values = arguments.positional;
  if (name == "cycle") {
    if (values.empty()) fail("loop.cycle() needs values.");
    return values[own.index0 % values.size()];
  }
  bool same = own.last_changed && own.last_changed->size() == values.size();
  for (std::size_t i = 0; same && i < values.size(); ++i)
    same = is_equal(budget, (*own.last_changed)[i], values[i]);
  if (same) return Value::of(false);
  own.last_changed = values;
  return Value::of(true);
}

}  // namespace lockstep::jinja
