#!/usr/bin/env bash
# strict_ptxas.sh COMMAND...: runs a CUDA compiler and fails where ptxas reports that it serialised
# tensor-core products or ignored a register count (C7508, C7510, C7511, ...): the kernel would be
# right, and a third slower.
exec 3>&1
messages=$("$@" 2>&1 1>&3)
status=$?
[[ -z $messages ]] || printf '%s\n' "$messages" >&2
if [[ $messages == *"(C75"* ]]; then
  echo "error: ptxas gave up the pipeline of a kernel (above)" >&2
  exit 1
fi
exit $status
