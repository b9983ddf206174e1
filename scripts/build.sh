# shellcheck shell=bash
# configure and build with CMake presets. Sourced after report.sh.
#   configure FOLDER PRESET [-DNAME=VALUE ...]   only where something differs from FOLDER's cache
#   build FOLDER TARGET...

find_nvcc() {  # -> path, or nothing
  command -v nvcc || { [[ -x /usr/local/cuda/bin/nvcc ]] && echo /usr/local/cuda/bin/nvcc; } || true
}

has_gpu() { [[ -e /dev/nvidia0 ]] || { command -v nvidia-smi && nvidia-smi -L; } >/dev/null 2>&1; }

cached() {  # folder, name -> value in its CMake cache
  sed -n "s/^$2:[A-Z]*=//p" "$1/CMakeCache.txt" 2>/dev/null
}

is_configured() {  # folder, -DNAME=VALUE ...
  local folder=$1 setting name
  shift
  [[ -f $folder/build.ninja && $(cached "$folder" CMAKE_HOME_DIRECTORY) == "$PWD" ]] || return 1
  for setting in "$@"; do
    setting=${setting#-D}
    name=${setting%%=*}
    [[ $(cached "$folder" "$name") == "${setting#*=}" ]] || return 1
  done
}

configure() {
  local folder=$1 preset=$2
  shift 2
  is_configured "$folder" "$@" && return
  # A cache of another place or of a configure step that broke off would only be in the way.
  [[ -f $folder/build.ninja && $(cached "$folder" CMAKE_HOME_DIRECTORY) == "$PWD" ]] ||
    rm -rf "$folder/CMakeCache.txt" "$folder/CMakeFiles"
  logged "configure-${folder//\//-}.log" cmake --preset "$preset" -B "$folder" "$@" ||
    { fail "cmake --preset $preset -B $folder $*"; return 1; }
}

build() {
  local folder=$1
  shift
  logged "build-${folder//\//-}.log" cmake --build "$folder" --target "$@" ||
    { fail "cmake --build $folder --target $*"; return 1; }
}
