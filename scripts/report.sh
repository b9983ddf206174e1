# shellcheck shell=bash
# Lines on the terminal, one per step, and logs beside the build. Sourced; sets no options.
#   begin NAME        starts a step
#   note TEXT         a line within it
#   finish TEXT       ends it, with its seconds
#   logged FILE CMD   runs CMD with all its output in build/logs/FILE; on failure shows the end of it

LOGS=${HEADRACE_LOGS:-build/logs}
mkdir -p "$LOGS"

now_ms() { local t=${EPOCHREALTIME/[.,]/}; echo $((t / 1000)); }

step_name=
step_start=0

begin() { step_name=$1; step_start=$(now_ms); }
note() { printf '  %-9s %s\n' "$step_name" "$1" >&2; }
finish() {
  local ms=$(($(now_ms) - step_start))
  printf '  %-9s %-58s %4d.%d s\n' "$step_name" "$1" $((ms / 1000)) $((ms % 1000 / 100)) >&2
}
fail() {
  printf '  %-9s FAILED: %s\n' "$step_name" "$1" >&2
  return 1
}

logged() {
  local file=$LOGS/$1 status=0
  shift
  mkdir -p "$(dirname "$file")"
  "$@" >"$file" 2>&1 </dev/null || status=$?
  if ((status != 0)); then
    printf -- '--- the end of %s\n' "$file" >&2
    tail -n "${HEADRACE_LOG_TAIL:-30}" "$file" >&2
    printf -- '--- \n' >&2
  fi
  return "$status"
}
