#!/usr/bin/env bash
# llama_cpp.sh [llama.cpp|ik_llama.cpp]
# Fetches and builds a CPU peer for the CPU of this machine, and prints the folder of its programs. About
# nine minutes on two cores the first time (ik_llama.cpp: more); then it only prints.
# It is measured beside Headrace (bench/peers/compare.py) and no part of it.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
export HEADRACE_LOGS=${HEADRACE_LOGS:-build/logs}
source scripts/report.sh
source scripts/packages.sh

peer=${1:-llama.cpp}
peers=${XDG_CACHE_HOME:-$HOME/.cache}/headrace/peers
# Each peer: the PyPI package whose source archive holds it, and what is built of it. Tests, examples and
# pages are off; llama.cpp's prebuilt page is on by default and would be downloaded.
case $peer in
llama.cpp)
  package=llama-cpp-python version=0.3.36 requirement=bench/peers/llama_cpp_sdist.txt
  programs=(llama-bench llama-batched-bench llama-completion llama-perplexity)
  options=(-DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_UI=OFF
    -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF)
  ;;
ik_llama.cpp)
  package=ik-llama-cpp-python version=0.1.5 requirement=bench/peers/ik_llama_cpp_sdist.txt
  programs=(llama-bench llama-batched-bench)
  options=(-DLLAMA_BUILD_SERVER=OFF -DLLAMA_CURL=OFF)
  ;;
*)
  echo "llama_cpp.sh: no peer '$peer': llama.cpp or ik_llama.cpp" >&2
  exit 1
  ;;
esac
archive_name=${package//-/_}-$version
source_folder=$peers/$archive_name/vendor/$peer

# -march=native decides which kernels are compiled in (AVX-512, and AMX where the CPU has it): a
# build is only right for CPUs with the same flags, so the flags are part of its stamp.
cpu_flags=$(grep -m 1 '^flags' /proc/cpuinfo | sha256sum | cut -c 1-16)
stamp=$source_folder/build/headrace-cpu-flags

fetch_source() {
  begin fetch
  [[ -f $source_folder/CMakeLists.txt ]] && { finish "source there"; return; }
  local archive=$peers/$archive_name.tar.gz
  mkdir -p "$peers"
  [[ -f $archive ]] || logged peer-download.log /usr/bin/python3 -m pip download \
    --disable-pip-version-check --progress-bar off --no-deps --no-binary "$package" --require-hashes \
    --dest "$peers" -r "$requirement" || fail "pip download of the sdist"
  tar -xzf "$archive" -C "$peers"
  finish "$source_folder"
}

# GCC 12 drops the stores that fill AMX's tile configuration before its intrinsic reads them, and the
# first tile load is an illegal instruction. This line stops it; it does nothing else.
keep_tile_configuration() {
  local file=$source_folder/ggml/src/ggml-cpu/amx/mmq.cpp
  [[ -f $file ]] && ! grep -q 'memory"); // GCC 12' "$file" || return 0
  sed -i 's|^\( *\)_tile_loadconfig(&tc);|\1__asm__ volatile("" : : "r"(\&tc) : "memory"); // GCC 12\n&|' "$file"
}

build_peer() {
  begin build
  keep_tile_configuration
  note "$peer for this CPU (about nine minutes on two cores; log: $LOGS/peer-build.log)"
  logged peer-configure.log cmake -S "$source_folder" -B "$source_folder/build" -G Ninja \
    -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_BUILD_TESTS=OFF "${options[@]}" ||
    fail "configure"
  logged peer-build.log cmake --build "$source_folder/build" --target "${programs[@]}" || fail "build"
  echo "$cpu_flags" >"$stamp"
  finish "$source_folder/build/bin"
}

is_built() {
  local program
  for program in "${programs[@]}"; do [[ -x $source_folder/build/bin/$program ]] || return 1; done
  # A build without a stamp was made by hand on this machine: it is taken as it is.
  [[ -f $stamp ]] || echo "$cpu_flags" >"$stamp"
  [[ $(<"$stamp") == "$cpu_flags" ]]
}

if ! is_built; then
  install_packages build model
  fetch_source
  build_peer
fi
echo "$source_folder/build/bin"
