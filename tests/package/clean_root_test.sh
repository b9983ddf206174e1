#!/usr/bin/env bash
# clean_root_test.sh PACKAGE.deb MODEL.gguf ROOT.tar: the package in a bare Debian 12 (ROOT.tar, made with mmdebstrap where it is not there), from
# its installation to a first answer in at most 60 s, the model coming from a stand-in for Ollama's registry on this machine. Needs root.
set -euo pipefail
package=$(readlink -f "$1") model=$(readlink -f "$2") root_tar=$3
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
server=
finish() {
  [[ -z $server ]] || kill "$server"
  umount "$folder/root/proc" 2>/dev/null || true
  rm -rf "$folder"
}
trap finish EXIT
[[ -s $root_tar ]] || mmdebstrap --quiet --variant=apt bookworm "$root_tar"
mkdir "$folder/root"
tar -C "$folder/root" -xf "$root_tar"
mount -t proc proc "$folder/root/proc" 2>/dev/null || true  # a container may forbid it: works without
cp "$package" "$folder/root/headrace.deb"

PYTHONPATH=tests/cli python3 - "$model" >"$folder/url" <<'SERVER' &
import pathlib, sys, time
from stand_in_hub import StandInHub
hub = StandInHub({})
hub.ollama["library/smollm2:latest"] = pathlib.Path(sys.argv[1]).read_bytes()
print(hub.url, flush=True)
time.sleep(600)
SERVER
server=$!
until [[ -s $folder/url ]]; do sleep 0.1; done

inside() {
  chroot "$folder/root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root HEADRACE_OLLAMA_REGISTRY="$(<"$folder/url")" "$@"
}
begun=$(date +%s.%N)
inside dpkg -i /headrace.deb >"$folder/log"
answer=$(inside headrace run smollm2 "What is the capital of France?" --pull -n 16 </dev/null)
seconds=$(awk -v begun="$begun" -v now="$(date +%s.%N)" 'BEGIN { printf "%.1f", now - begun }')
echo "from dpkg -i to the answer: $seconds s: $answer"
[[ $answer == *Paris* ]] || { echo "that is no answer"; exit 1; }
awk -v seconds="$seconds" 'BEGIN { exit seconds > 60 }' || { echo "more than 60 s"; exit 1; }

inside headrace list | grep >/dev/null '^smollm2 '
inside headrace doctor | grep >/dev/null '^[a-z]* *memory '
inside bash -n /usr/share/bash-completion/completions/headrace
zcat "$folder/root/usr/share/man/man1/headrace.1.gz" | grep >/dev/null '^.SH COMMANDS'
grep -q '^ExecStart=/usr/bin/headrace ' "$folder/root/lib/systemd/system/headrace.service"
inside dpkg --verify headrace
inside dpkg -r headrace >>"$folder/log"
[[ ! -e $folder/root/usr/lib/headrace && ! -L $folder/root/usr/bin/headrace ]] || { echo "something is left of it"; exit 1; }
