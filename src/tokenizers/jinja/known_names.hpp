#pragma once

#include "tokenizers/jinja/tree.hpp"

namespace lockstep::jinja {

/// Throws SyntaxFailure for a filter or a test that does not exist or is not supported. As in jinja2, one
/// within an if block or an inline if is not looked at before it is used: a template may ask whether it
/// exists.
void check_names(const Tree& tree);

}  // namespace lockstep::jinja
