# shellcheck shell=bash
# install_packages GROUP...: makes sure that the Debian packages of these groups (packages.txt) are
# there. Asks apt nothing where none is missing. Sourced after report.sh.

as_root() {
  if ((EUID == 0)); then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    echo "not root and no sudo: run this command as root: $*" >&2
    return 1
  fi
}

packages_of() {  # group -> names, one a line
  awk -v group="$1" '$1 == group { for (i = 2; i <= NF; ++i) print $i }' scripts/packages.txt
}

missing_packages() {  # names -> those that are not installed
  local installed
  installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "$@" 2>/dev/null |
    awk '$2 == "installed" { print $1 }') || true
  comm -23 <(printf '%s\n' "$@" | sort -u) <(sort -u <<<"$installed")
}

install_packages() {
  begin packages
  local group wanted=() missing=()
  for group in "$@"; do mapfile -t -O "${#wanted[@]}" wanted < <(packages_of "$group"); done
  if ! command -v dpkg-query >/dev/null; then
    fail "this is not a Debian system. Install what these stand for, then run again: ${wanted[*]}"
    return 1
  fi
  mapfile -t missing < <(missing_packages "${wanted[@]}")
  if ((${#missing[@]} == 0)); then
    finish "all ${#wanted[@]} there"
    return
  fi
  note "installing with apt-get: ${missing[*]}"
  logged apt-update.log as_root env DEBIAN_FRONTEND=noninteractive apt-get update ||
    { fail "apt-get update (network? sources?)"; return 1; }
  logged apt-install.log as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends "${missing[@]}" ||
    { fail "apt-get install ${missing[*]}"; return 1; }
  finish "${#missing[@]} installed"
}
