// Operators on template values, as Python defines them; integers are 64-bit and overflow is an
// error.
#pragma once

#include "text/template/template_ast.h"
#include "text/template/template_context.h"
#include "text/template/template_value.h"

namespace headrace {

// REQUIRES: op is one of kAdd .. kPower without kConcat
Value apply_arithmetic(TemplateContext& context, ast::BinaryOp op, const Value& a, const Value& b);
// REQUIRES: op is kEqual .. kNotIn
bool apply_comparison(TemplateContext& context, ast::BinaryOp op, const Value& a, const Value& b);
// REQUIRES: op is not kNot
Value apply_sign(TemplateContext& context, ast::UnaryOp op, const Value& value);

// object[start:stop:step] of a string, list or tuple; Undefined bounds are absent ones.
Value slice(TemplateContext& context, const Value& object, const Value& start, const Value& stop,
            const Value& step);

}  // namespace headrace
