// Python's two ways to format: "%d" % x and "{}".format(x).
#pragma once

#include <string_view>
#include <vector>

#include "text/template/template_context.h"
#include "text/template/template_value.h"

namespace headrace {

// `format % arguments` for %s %r %d %i %f %e %g %x %o %c and %%.
Value format_percent(TemplateContext& context, std::string_view format,
                     const std::vector<Value>& arguments);

// format.format(*positional, **keyword): fields by order, number or name, with members and items
// behind them, !s and !r, and specifications [[fill]align][sign][0][width][,][.precision][type] of
// strings, integers and floats.
Value format_braces(TemplateContext& context, std::string_view format, const Arguments& arguments);

}  // namespace headrace
