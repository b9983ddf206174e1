// Template tokens -> syntax tree (recursive descent, bounded depth).
#pragma once

#include <string_view>

#include "text/template/template_ast.h"

namespace headrace {

// Throws TemplateError for what is wrong, too deep or not supported.
ast::Body parse_template(std::string_view source, int depth_max);

}  // namespace headrace
