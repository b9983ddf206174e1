#!/usr/bin/env bash
# library_test.sh BUILD_FOLDER MODEL.gguf: libheadrace of a build with HEADRACE_SHARED, installed into a folder of its own, from C: the example, found
# by find_package and by a bare compiler, and all that headrace.h promises.
set -euo pipefail
build=$(readlink -f "$1") model=$(readlink -f "$2")
cd "$(dirname "$(readlink -f "$0")")"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cmake --install "$build" --component shared --prefix "$folder/prefix" >/dev/null
library=$(find "$folder/prefix" -name 'libheadrace.so')
libraries=$(dirname "$library")

exported=$(nm -D --defined-only "$library" | awk '{ print $3 }' | sort)
declared=$(grep -oE "\\bheadrace_[a-z_]+\(" "$folder/prefix/include/headrace.h" | tr -d "(" | sort -u)
[[ $exported == "$declared" ]] || { diff <(echo "$exported") <(echo "$declared"); echo "exported is not what the header declares"; exit 1; }
foreign=$(ldd "$library" | awk '$2 == "=>" { print $1, $3 }' | grep -v "$libraries/" |
  grep -vE '^(ld-linux|libc|libm|libdl|librt|libpthread|libresolv|libgcc_s|libstdc\+\+)[-.]' || true)
[[ -z $foreign ]] || { echo "taken from this system, not from headrace/ beside the library: $foreign"; exit 1; }

cmake -S . -B "$folder/build" -DCMAKE_PREFIX_PATH="$folder/prefix" -DCMAKE_C_FLAGS='-Wall -Wextra -Werror' >/dev/null
cmake --build "$folder/build" >/dev/null
"$folder/build/checks" "$model"
answer=$("$folder/build/answer" "$model" "What is the capital of France?")
echo "$answer"
[[ $answer == *Paris* && $answer == *tokens,* ]] || { echo "that is no answer"; exit 1; }

# The commands of docs/c.md.
cc -std=c11 -Wall -Wextra -Werror answer.c -I"$folder/prefix/include" -L"$libraries" -Wl,-rpath,"$libraries" -lheadrace -o "$folder/answer"
[[ $("$folder/answer" "$model" "What is the capital of France?") == "$answer" ]] || { echo "another answer by cc"; exit 1; }
"$folder/answer" /no/such.gguf x 2>"$folder/error" && exit 1
grep -q '/no/such.gguf' "$folder/error"
