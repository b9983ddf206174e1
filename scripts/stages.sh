# shellcheck shell=bash
# The stages of ./test, in the order in which they run. Each is a function that runs in a subshell
# with `set -e`: the first command that fails ends it and marks it failed; the next stage still runs.
# Sourced after report.sh, packages.sh, build.sh and model.sh, with MODE quick, normal or full.

# Programs whose tests run under sanitizers in every ./test; --full takes all there are. ASan: the
# simulation takes every path of scheduler and cache, sched_test (long replays of traces) no other. TSan is
# for those with threads: the engine's loop, the thread pool, queues; a scheduler has one.
ASAN_TESTS=(base_test kv_test sim_test text_test weights_test)
TSAN_TESTS=(base_test tensor_test engine_test)

# Seconds a fuzz target; steps of the simulation, plain and under sanitizers (about ten times slower).
FUZZ_SECONDS=8
SIM_STEPS=1000000
SIM_STEPS_SANITIZED=100000
ROUTE_SIM_EVENTS=300000
if [[ $MODE == full ]]; then
  FUZZ_SECONDS=600
  SIM_STEPS=20000000
  SIM_STEPS_SANITIZED=1000000
  ROUTE_SIM_EVENTS=100000000
fi

# The real models, as the tests look for them.
export HEADRACE_MODEL_SMOLLM2 HEADRACE_MODEL_GEMMA3 HEADRACE_MODEL_QWEN2 HEADRACE_MODEL_MINILM
HEADRACE_MODEL_SMOLLM2=$(model_file smollm2)
HEADRACE_MODEL_GEMMA3=$(model_file gemma3)
HEADRACE_MODEL_QWEN2=$(model_file qwen2)
HEADRACE_MODEL_MINILM=$(model_file minilm)

RESULTS=$PWD/$LOGS/results  # one folder of JUnit XML files a stage

one_of() { local IFS='|'; echo "^($*)\$"; }  # names -> a pattern for ctest -R

# What failed is named again at the end of ./test: a line a test in RESULTS/STAGE.failures.
note_failures() { /usr/bin/python3 scripts/count_tests.py --failed "$RESULTS/$1" >"$RESULTS/$1.failures"; }

# What failed may be tried once more, alone, where all of it is labelled `timing`: tests that talk over
# sockets or look at a clock, which fail on a machine that stood still for seconds. They are named at the
# end. What a sanitizer reported is never tried again, nor is any other test: a fault that comes one time
# in ten is a fault.
second_try() {  # stage, log, command...
  local stage=$1 log=$2
  shift 2
  grep -qE 'Sanitizer|runtime error:' "$LOGS/$log" && return 1
  logged "second-$log" "$@" || return
  cat "$RESULTS/$stage.failures" >>"$RESULTS/$stage.timing"
  rm "$RESULTS/$stage.failures"
}

# Whether nothing failed in the last run of ctest that is not labelled so.
only_timing_failed() {  # folder
  local failed=$1/Testing/Temporary/LastTestsFailed.log
  [[ -s $failed ]] || return
  ctest --test-dir "$1" -N -L '^timing$' | sed -n 's/^ *Test *#[0-9]*: //p' | sort >"$LOGS/timing-tests"
  [[ -z $(cut -d: -f2 "$failed" | sort | comm -23 - "$LOGS/timing-tests") ]]
}

# run_ctest STAGE FOLDER [ctest arguments]: GoogleTest programs also write their own counts.
run_ctest() {
  local stage=$1 folder=$2
  shift 2
  local run=(ctest --test-dir "$folder" --timeout 1200 --no-tests=error --output-on-failure
    --output-junit "$RESULTS/$stage/ctest.xml")
  export GTEST_OUTPUT="xml:$RESULTS/$stage/"
  logged "$stage.log" "${run[@]}" --parallel "$(nproc)" "$@" && return
  note_failures "$stage"
  # Under sanitizers no test is tried again: what shows once there is a fault.
  [[ $folder == build-asan || $folder == build-tsan ]] && { fail "ctest ${*:-(all)} in $folder"; return 1; }
  only_timing_failed "$folder" || { fail "ctest ${*:-(all)} in $folder"; return 1; }
  grep -lE '<testsuites [^>]*failures="[1-9]' "$RESULTS/$stage"/*.xml | xargs -r rm || true  # written anew
  second_try "$stage" "$stage.log" "${run[@]}" --rerun-failed || fail "ctest ${*:-(all)} in $folder, twice"
}

stage_packages() {
  local groups=(build model test fuzz)
  [[ $MODE == quick ]] || groups+=(browser)
  [[ $MODE != full ]] || groups+=(package)
  install_packages "${groups[@]}"
}
stage_model() {
  local key keys=smollm2
  [[ $MODE == quick ]] || keys+=' gemma3 qwen2 minilm'
  for key in $keys; do fetch_model "$key"; done
}

# What a machine can keep of our habits: layout, sizes, includes, words.
stage_source() {
  begin source
  logged source.log /usr/bin/python3 scripts/check_source.py || fail "scripts/check_source.py" || return
  logged source.log /usr/bin/python3 scripts/check_docs.py || fail "scripts/check_docs.py" || return
  logged source.log /usr/bin/python3 tests/mutants/run.py --check || fail "tests/mutants/run.py --check" || return
  finish "layout, sizes, includes and words of the sources; links of the pages"
}

stage_build() {
  begin build
  configure build cpu -DHEADRACE_TESTS=ON
  build build all
  finish "build: program and tests"
}

stage_unit() {
  begin unit
  local labels='golden'
  [[ $MODE == quick ]] && labels='golden|slow'
  export HEADRACE_SIM_STEPS=$SIM_STEPS HEADRACE_ROUTE_SIM_EVENTS=$ROUTE_SIM_EVENTS
  run_ctest unit build -LE "$labels"
  finish "unit tests"
}

stage_golden() {
  begin golden
  # The perplexity of fp32 says again what its values say, for a fifth of the time. Without AMX, where
  # nothing of a batch changes a bit, --batch-invariant runs what default flags run.
  local again='*PerplexityOfFloat32Path/qwen2:*PerplexityOfFloat32Path/gemma3'
  grep -qs amx_bf16 /proc/cpuinfo || again+=':EqualBits/Invariance.*/BatchInvariant'
  [[ $MODE == full ]] || export GTEST_FILTER="-$again"
  run_ctest golden build -L golden --verbose
  unset GTEST_FILTER
  grep -oE 'golden \|.*' "$LOGS/golden.log" >&2 || true  # the figures
  finish "values, texts and invariance against the goldens"
}

# The Python packages of the suites, in an environment of their own, pinned with hashes.
ensure_venv() {  # folder, requirements
  local folder=$1 stamp=$1/requirements.sha256 want
  want=$(sha256sum <"$2")
  [[ -f $stamp && $(<"$stamp") == "$want" ]] && return
  rm -rf "$folder"
  logged venv.log /usr/bin/python3 -m venv "$folder" || fail "python3 -m venv $folder"
  logged venv.log "$folder/bin/python" -m pip install --disable-pip-version-check --no-deps \
    --require-hashes --only-binary :all: -r "$2" || fail "pip install -r $2"
  echo "$want" >"$stamp"
}

pytest_of() {  # suite, arguments
  local suite=$1
  shift
  # The slowest test takes 40 s: one that takes 300 hangs, and is named instead of holding up the run.
  build/venv/bin/python -m pytest -q --durations=10 --timeout=300 -o "cache_dir=$PWD/build/pytest-$suite" "$@" "tests/$suite"
}

# run_suites STAGE SUITE...: the suites run at once: each waits for sockets and clocks most of the time.
run_suites() {
  local stage=$1 suite failed=0 status
  local -A running=()
  shift
  ensure_venv build/venv tests/requirements.txt
  export HEADRACE_BINARY=$PWD/build/headrace PYTHONPATH=''
  for suite in "$@"; do
    rm -rf "build/pytest-$suite"
    logged "$stage-$suite.log" pytest_of "$suite" --junitxml="$RESULTS/$stage/$suite.xml" &
    running[$suite]=$!
  done
  for suite in "${!running[@]}"; do
    wait "${running[$suite]}" && unset "running[$suite]"
  done
  for suite in "${!running[@]}"; do
    note_failures "$stage"
    status=0
    pytest_of "$suite" --last-failed -m 'not timing' --collect-only >"$LOGS/strict-$suite.log" 2>&1 || status=$?
    # 5: there is none.
    ((status == 5)) && second_try "$stage" "$stage-$suite.log" pytest_of "$suite" --last-failed \
      --junitxml="$RESULTS/$stage/second-$suite.xml" && continue
    fail "pytest tests/$suite" || failed=1
  done
  ((failed == 0))
}

stage_clients() {
  begin clients
  run_suites clients server cli
  finish "openai client, HTTP and command line suites"
}

# The pages of docs/: the site builds without a warning, their commands run, their reference is the program's.
stage_docs() {
  begin docs
  ensure_venv build/venv-docs tests/requirements_docs.txt
  NO_MKDOCS_2_WARNING=1 logged site.log build/venv-docs/bin/mkdocs build --strict || fail "mkdocs build --strict"
  run_suites docs docs
  finish "the site in build/site, commands of the pages, reference of flags, routes and metrics"
}

# The web page, with people's hands.
stage_browser() {
  begin browser
  run_suites browser browser
  finish "the web page in Chromium"
}

# Suites of clients that want other versions of the packages.
stage_clients_full() {
  begin clients_full
  ensure_venv build/venv-full tests/requirements_full.txt
  export HEADRACE_BINARY=$PWD/build/headrace PYTHONPATH=''
  rm -rf build/pytest-full
  HEADRACE_OPENAPI_REQUESTS=10000 logged clients-full.log build/venv-full/bin/python -m pytest -q \
    -o "cache_dir=$PWD/build/pytest-full" --junitxml="$RESULTS/clients_full/server.xml" \
    tests/server/test_llama_index.py tests/server/test_schemathesis.py tests/server/test_schemas.py ||
    fail "pytest tests/server/test_llama_index.py tests/server/test_schemathesis.py tests/server/test_schemas.py"
  ensure_venv build/venv-lm-eval tests/requirements_lm_eval.txt
  logged clients-full.log build/venv-lm-eval/bin/python -m pytest -q -o "cache_dir=$PWD/build/pytest-full" \
    --junitxml="$RESULTS/clients_full/lm_eval.xml" tests/server/test_lm_eval.py || fail "pytest tests/server/test_lm_eval.py"
  HEADRACE_FAULTY_PULLS=1000 logged clients-full.log build/venv/bin/python -m pytest -q -o "cache_dir=$PWD/build/pytest-full" \
    --junitxml="$RESULTS/clients_full/pull.xml" tests/cli/test_pull.py -k faulty || fail "1,000 faulty downloads"
  finish "LlamaIndex, lm-eval, 1,000 faulty downloads, 10,000 requests of Schemathesis, 60 schemas of answers"
}

# The Python package as a user installs it, with a real model, and the C library.
stage_python() {
  begin python
  ensure_venv build/venv-python tests/requirements_python.txt
  # The compiler by the name that the other builds call it: some of its results are theirs.
  CC=cc CXX=c++ logged python.log build/venv-python/bin/python -m pip install --disable-pip-version-check --no-deps --no-build-isolation \
    --force-reinstall . || fail "pip install ."
  export HEADRACE_BINARY=$PWD/build/headrace PYTHONPATH=''
  logged python.log build/venv-python/bin/python -m pytest -q --timeout=300 -o "cache_dir=$PWD/build/pytest-python" \
    --junitxml="$RESULTS/python/python.xml" tests/python || fail "pytest tests/python"
  logged python-docs.log build/venv-python/bin/python -m pytest -q --timeout=300 -o "cache_dir=$PWD/build/pytest-python" \
    --junitxml="$RESULTS/python/docs.xml" tests/docs/test_blocks.py -k python_package || fail "blocks of the Python package"
  # The C library, of the same objects.
  logged shared.log cmake -S . -B build-python -DHEADRACE_SHARED=ON || fail "cmake -DHEADRACE_SHARED=ON"
  logged shared.log cmake --build build-python --target headrace_shared || fail "libheadrace"
  logged shared.log tests/shared/library_test.sh build-python "$HEADRACE_MODEL_SMOLLM2" || fail "tests/shared/library_test.sh"
  finish "the Python package, installed by pip; the C library"
}

# The program with what travels beside it, alone in a folder.
stage_package() {
  begin package
  logged package.log tests/package/package_test.sh build/headrace || fail "tests/package/package_test.sh"
  if [[ $MODE == full ]]; then
    rm -f build/headrace_*.deb
    logged package.log scripts/package build || fail "scripts/package"
    logged package.log as_root tests/package/clean_root_test.sh build/headrace_*.deb "$HEADRACE_MODEL_SMOLLM2" build/debian12.tar ||
      fail "tests/package/clean_root_test.sh"
    note "$(grep -o 'from dpkg -i.*' "$LOGS/package.log" | tail -1)"
  fi
  finish "the program runs away from its build folder"
}

# Instruction sets that this machine may lack or hide: QEMU emulates AVX2 (Haswell) and a baseline
# without AVX (Nehalem); each picks other kernels at run time.
stage_emulated() {
  begin emulated
  local cpu failed=0 filter='*'
  # What GPUs compute, and plans and layouts, know nothing of the CPU's instructions. Every kernel that a
  # lesser CPU has runs in `unit` too, however rows are batched and dealt to threads; here it is shown
  # once that nothing else is called, at a hundredth of the speed: one head size of each kind, no statistics.
  [[ $MODE == full ]] || filter="-*Cuda*:*Wgmma*:*Layout.*:*Plan.*:KernelNames.*:AmxEmulation.*:DeviceSample.*:SlotState.*\
:*_d128_*:*_d256_*:*_d80_*:*F16_q8_kv8_d192_*:*_q14_kv2_*:*_window300:*I8_q8_kv1_d96_*:*F16_vI8_*:Sample.Draws*\
:LinearTest.AWeightThatIsPackedLater*:Attention.ValuesMayBePartOfKeys:AttentionTree.*:*SameBits*:*TheBitsOf*\
:LinearTest.QuantsAtTheirLimits*:*PanelSweep*:*ANan*:RopeKv.EveryKernelAgrees*:*I8_v*:*_sinks:*_slopes"
  local -A running=()
  for cpu in Haswell Nehalem; do
    GTEST_OUTPUT="xml:$RESULTS/emulated/$cpu.xml" logged "emulated-$cpu.log" \
      timeout 1800 qemu-x86_64 -cpu "$cpu" build/src/ops/ops_test --gtest_filter="$filter" &
    running[$cpu]=$!
  done
  for cpu in "${!running[@]}"; do
    wait "${running[$cpu]}" || fail "ops_test on an emulated $cpu" || failed=1
  done
  ((failed == 0))
  finish "ops_test as Haswell (AVX2) and Nehalem (baseline)"
}

# What docs/changing.md says that a change costs is tried on a copy of the commit.
stage_changes() {
  begin changes
  scripts/try_changes || fail "scripts/try_changes"
  finish "each kind of change applies, builds and passes its tests"
}

# Faults put into copies of the scheduler, the cache and the router: the simulations must find each. A sample, or all
# from three first seeds.
stage_mutants() {
  begin mutants
  local what=(--every 6)
  [[ $MODE == full ]] && what=(--first-seeds 1 10001 20001)
  logged mutants.log tests/mutants/run.py build "${what[@]}" || fail "tests/mutants/run.py"
  tail -n 1 "$LOGS/mutants.log" >&2
  finish "the simulation finds faults that were put in"
}

stage_sanitize() {  # name, programs...
  begin "$1"
  local name=$1 folder=build-$1
  shift
  configure_sanitized "$name"
  export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1
  export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
  export HEADRACE_SIM_STEPS=$SIM_STEPS_SANITIZED
  if [[ $MODE == full ]]; then
    build "$folder" all
    run_ctest "$name" "$folder" -LE 'golden|timing'
  else
    build "$folder" "$@"
    run_ctest "$name" "$folder" -R "$(one_of "$@")"
  fi
  finish "$name build"
}
stage_asan() { stage_sanitize asan "${ASAN_TESTS[@]}"; }
stage_tsan() { stage_sanitize tsan "${TSAN_TESTS[@]}"; }

# No test of ASAN_TESTS and no fuzz target computes a tensor or runs an engine: clang would take minutes for
# kernels that nothing calls. Of the engine's threads TSan looks at what they share, which is not in kernels
# and models: those are the release build's. --full instruments all.
configure_sanitized() {  # asan or tsan
  local without='ops;models;engine'
  [[ $1 == tsan ]] && without='ops;models;weights;text'
  [[ $MODE == full ]] && without=
  configure "build-$1" "$1" -DHEADRACE_TESTS=ON "-DHEADRACE_SANITIZE_WITHOUT=$without"
}

# One fuzz target, from its committed seeds plus what earlier runs here found.
fuzz_one() {  # program
  local target=${1##*/} verdict=failed
  local corpus=build-asan/corpus/$target seeds=tests/fuzz/corpus/$target log=$LOGS/fuzz-$target.log
  mkdir -p "$corpus" build-asan/findings
  if [[ ! -d $seeds ]]; then
    echo "no seeds in $seeds" >"$log"
  elif "$1" -max_total_time="$FUZZ_SECONDS" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="build-asan/findings/$target-" "$corpus" "$seeds" >"$log" 2>&1; then
    verdict=passed
  fi
  [[ $verdict == passed ]] || tail -n 25 "$log" >&2
  echo "$target" >>"$RESULTS/fuzz/$verdict"
}

stage_fuzz() {
  begin fuzz
  configure_sanitized asan
  build build-asan fuzzers
  export -f fuzz_one
  export FUZZ_SECONDS LOGS RESULTS
  # shellcheck disable=SC2016  # the inner shell expands $1
  printf '%s\0' build-asan/fuzz/* | xargs -0 -n 1 -P "$(nproc)" bash -c 'fuzz_one "$1"' _
  if [[ -f $RESULTS/fuzz/failed ]]; then
    fail "$(paste -sd ' ' "$RESULTS/fuzz/failed"): see build-asan/findings and $LOGS/fuzz-*.log"
  fi
  finish "$FUZZ_SECONDS s each: $(sort "$RESULTS/fuzz/passed" | paste -sd ' ')"
}

# CUDA compiles and links wherever nvcc is, tests and benches too, and the program still starts without
# driver or GPU. Here nothing runs a kernel, so they are compiled quickly; with --full as they are run, where
# ptxas must keep their pipelines (scripts/gpu_check always does). Of tests, those that know
# of CUDA, and of plans and layouts: the others ran in `unit`.
stage_cuda() {
  begin cuda
  export CUDACXX
  CUDACXX=$(find_nvcc)
  if [[ -z $CUDACXX ]]; then
    echo "no nvcc, so nothing of CUDA was compiled" >"$RESULTS/cuda/skipped"
    finish "skipped: no nvcc on the PATH or in /usr/local/cuda/bin"
    return
  fi
  local folder=build-cuda-draft draft=ON
  if [[ $MODE == full ]]; then folder=build-cuda draft=OFF; fi
  configure "$folder" release -DHEADRACE_TESTS=ON -DHEADRACE_CUDA_DRAFT=$draft
  build "$folder" all benches
  logged cuda-start.log "$folder/headrace" --version || fail "$folder/headrace --version"
  if readelf -d "$folder/headrace" | grep -q 'NEEDED.*libcuda\.so'; then
    fail "$folder/headrace needs libcuda.so to start: no driver, no program"
  fi
  GTEST_FILTER='*Cuda*:*Gpu*:*Device*:*Wgmma*:*Layout*:*Plan*:*Kernel*:*Gemm*:*Upload*:SlotState*' \
    run_ctest cuda "$folder" -R "$(one_of tensor_test ops_test models_test)"
  finish "program, tests and benches with CUDA; starts without a driver"
}
