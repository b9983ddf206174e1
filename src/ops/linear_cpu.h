#pragma once
namespace headrace {
struct OpContext;
struct LinearArgs;
void linear_cpu_reference(OpContext& context, const LinearArgs& args);
}  // namespace headrace
