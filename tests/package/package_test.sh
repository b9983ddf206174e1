#!/usr/bin/env bash
# package_test.sh PROGRAM: the program and its lib/ alone in a folder start, and take from the
# system only what a base system has.
set -euo pipefail
program=$(readlink -f "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp "$program" "$folder/"
cp -r "$(dirname "$program")/lib" "$folder/"

"$folder/headrace" --version
# Opened when something is fetched, so that ldd does not know it.
[[ -e $folder/lib/libcurl.so.4 ]] || { echo "libcurl is not beside the program"; exit 1; }

# ldd prints "name => path (address)".
foreign=$(ldd "$folder/headrace" | awk '$2 == "=>" { print $1, $3 }' | grep -v "$folder/lib/" |
  grep -vE '^(ld-linux|libc|libm|libdl|librt|libpthread|libresolv|libgcc_s|libstdc\+\+)[-.]' || true)
if [[ -n $foreign ]]; then
  echo "taken from this system, not from lib/ beside the program: $foreign"
  exit 1
fi
