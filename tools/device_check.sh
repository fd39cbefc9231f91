#!/usr/bin/env bash
# device_check.sh: everything about the CUDA backend that only a GPU can say, in one call of at most eight minutes: builds, checks every
# kernel with fresh values, measures what the device gives at best and what our kernels make of it, and compares the backend with the cpu.
#
#   tools/device_check.sh                      on one H100 or H200; needs cmake, ninja, C and C++ compilers, nvcc, cublas and nccl
#   tools/device_check.sh --emulated           the same steps on the emulator with tiny sizes: no time printed then is a measurement
#
# Steps run in order of value, each with a limit of its own; one that fails does not stop the others. A step that cannot run says why.
# The end is a table on the standard output and $OUT/device_check.json:
#
#   {"schema": 1, "date", "revision", "emulated", "device", "seed", "seconds",
#    "steps": [{"step", "status": "ok" | "failed" | "timed out" | "skipped", "seconds", "reason"}],
#    "rows":  [{"step", "item", "size", "value", "unit", "spread_percent", "fraction", "of", "bound", "verdict"}]}
#
# value, spread_percent and fraction are numbers or null; fraction is of the ceiling `of` measured in the same run, or how many times what
# the row is compared with ("times"). verdict is "met" or "missed" for a row with a bound (bounds are predictions: docs/speed.md),
# "emulated: not a measurement", "ok" or "FAILED" for what is right or wrong, or null.
#
# Ends with 0 when all that ran was right, whatever its speed; with 1 when something was wrong or did not end; with 77 without a GPU.
set -u

ROOT=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
LIMIT=480

# name, limit in seconds, what it does
STEPS='
build       100 kernel tests and benchmark, with nothing but CUDA
correctness  45 every kernel against float64 and plain C, poisoned outputs, fresh values
ceilings     15 copy and read bandwidth, cuBLAS, a launch in a graph
kernels      50 each kernel by graph replay, as fractions of the ceilings
counting     30 ways to count who sends to which expert (the paper'"'"'s Figure 13)
ranks        30 four ranks on one device: the bits of one, while experts move
nccl         15 NCCL with one rank, in a stream and in a graph
layers       60 decode and prefill of a model of full shape, each way to run experts
sanitizer    50 compute-sanitizer: memcheck, racecheck, initcheck
e2e          85 the whole backend beside the cpu: logits, tokens, gimbal generate
'
# What an emulated run takes of the kernel tests.
QUICK_TESTS='mma_test wgmma_test rows_test router_test dispatch_test experts_test exchange_test graph_test cublas_test'

usage() {
    cat <<TEXT
usage: tools/device_check.sh [options]

  --list             the steps, and stop
  --only STEP,...    these steps alone; fractions need ceilings among them
  --emulated         on the emulator (see above); uses the build of ./dev build
  --build DIR        build there (default: build/device, emulated: build/release)
  --built            the build is there already
  --out DIR          results and logs (default: DIR of the build, device_check)
  --limit SECONDS    of everything (default: 480)
  --seed N           of the values that kernels are checked with (default: another one each time)
TEXT
}

fail_usage() { echo "device_check: $1; --help lists what there is" >&2; exit 64; }
steps() { printf '%s' "$STEPS" | awk 'NF {print $1}'; }
limit_of() { printf '%s' "$STEPS" | awk -v step="$1" '$1 == step {print $2}'; }
list() { printf '%s' "$STEPS" | awk 'NF {step = $1; limit = $2; $1 = $2 = ""; printf "%-12s at most %3d s %s\n", step, limit, $0}'; }

# A row of rows.tsv: step item size value unit spread fraction of bound verdict.
row() { local IFS=$'\t'; printf '%s\n' "$*" >>"$OUT/rows.tsv"; }
skip() { echo "$*" >"$OUT/$STEP.reason"; exit 77; }

there_is_a_gpu() { compgen -G '/dev/nvidia[0-9]*' >/dev/null || [ -e /dev/dxg ] || nvidia-smi -L 2>/dev/null | grep -q GPU; }

# --- steps: status 0, 77 with a reason, or wrong ---------------------------------------------------------------------

step_build() {
    local jobs nccl
    jobs=$(nproc)
    if [ "$EMULATED" = 1 ]; then
        cmake --preset release -S "$ROOT" -B "$BUILD" && cmake --build "$BUILD" -j "$jobs"
    else
        # NCCL may come as a Python package.
        [ -e "${CUDA_HOME:-/usr/local/cuda}/include/nccl.h" ] || nccl=$(python3 -c 'import nvidia.nccl; print(list(nvidia.nccl.__path__)[0])' 2>/dev/null)
        [ -z "${nccl:-}" ] || export NCCL_HOME=$nccl
        cmake -S "$ROOT" -B "$BUILD" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGB_WERROR=OFF -DGB_DEVICE_ONLY=ON && cmake --build "$BUILD" -j "$jobs" --target device_check
    fi
}

tests() {
    local name
    if [ "$EMULATED" = 1 ]; then
        for name in $QUICK_TESTS; do echo "$BUILD/tests/cuda_$name"; done
    else
        compgen -G "$BUILD/tests/device/*_test" | sort
    fi
}

step_correctness() {
    local program name said status wrong=0
    [ -n "$(tests)" ] || { echo "there are no tests in $BUILD"; return 1; }
    for program in $(tests); do
        name=$(basename "$program")
        said=$(GB_SEED=$SEED "$program" 2>&1)
        status=$?
        printf '== %s\n%s\n' "$name" "$said"
        if [ $status -eq 0 ]; then
            row correctness "${name#cuda_}" "seed $SEED" "$(printf '%s\n' "$said" | awk 'END {print $1}')" "tests" - - - - ok
        else
            row correctness "${name#cuda_}" "seed $SEED" - tests - - - - FAILED
            wrong=1
        fi
    done
    return $wrong
}

bench() {
    if [ "$EMULATED" = 1 ]; then "$BUILD/gimbal_cuemu_bench" "$@"; else "$BUILD/gimbal_cuda_bench" "$@"; fi
}
bench_step() { bench "$1" --rows "$OUT/rows.tsv" --seed "$SEED"; }
step_ceilings() { bench_step ceilings; }
step_kernels() { bench_step kernels; }
step_counting() { bench_step counting; }
step_ranks() { bench_step ranks; }
step_nccl() { bench_step nccl; }
step_layers() { bench_step layers; }

# Not every container lets the tool at the device; then that is said, for it is no fault of a kernel.
step_sanitizer() {
    local sanitizer tool program name wrong=0
    [ "$EMULATED" = 0 ] || skip "compute-sanitizer needs a GPU; the emulator's track and asan builds do its work"
    sanitizer=$(command -v compute-sanitizer || ls "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer" 2>/dev/null)
    [ -n "$sanitizer" ] || skip "compute-sanitizer is not installed"
    "$sanitizer" --tool memcheck "$BUILD/tests/device/mma_test" 2>&1 | grep 'ERROR SUMMARY' || skip "compute-sanitizer cannot work on this device"
    for tool in memcheck racecheck initcheck; do
        for program in $(tests); do
            name=$(basename "$program")
            [ $SECONDS -lt $((STEP_LIMIT - 10)) ] || { row sanitizer "$tool" "$name" - - - - - - "no time left"; continue; }
            printf '== %s %s\n' "$tool" "$name"
            if "$sanitizer" --tool "$tool" --error-exitcode 9 "$program"; then row sanitizer "$tool" "$name" - - - - - - ok
            else row sanitizer "$tool" "$name" - - - - - - FAILED; wrong=1; fi
        done
    done
    return $wrong
}

missing_libraries() {
    local module missing=
    command -v pkg-config >/dev/null || { echo pkg-config; return; }
    for module in luajit libuv jansson libpcre2-8 libutf8proc; do pkg-config --exists $module || missing="$missing $module"; done
    pkg-config --exists msgpack-c || pkg-config --exists msgpack || missing="$missing msgpack"
    echo $missing
}

tokens_of() { "$PROGRAM" generate "$ROOT/examples/models/tiny-moe" --backend "$1" --tokens "$2" --temperature 0 --max-tokens 16 --kv-cache-memory 64M; }

step_e2e() {
    local backend=cuda build=$BUILD missing test wrong=0 equal=0 prompt mine other
    local prompts='1 2 3|40 41 42 43|500 7|9 8 7 6 5'
    if [ "$EMULATED" = 1 ]; then
        backend=cuemu
        prompts='1 2 3'
    else
        missing=$(missing_libraries)
        [ -z "$missing" ] || skip "gimbal itself cannot be built here, there is no $missing"
        build=$BUILD/full
        cmake -S "$ROOT" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGB_WERROR=OFF &&
            cmake --build "$build" -j "$(nproc)" --target gimbal gimbal_cuda device_agree_test device_tokens_test || return 1
        for test in agree_test tokens_test; do
            if "$build/tests/device/$test"; then row e2e "$test" - - - - - - - ok; else row e2e "$test" - - - - - - - FAILED; wrong=1; fi
        done
    fi
    PROGRAM=$build/gimbal
    local IFS='|' all=0
    for prompt in $prompts; do
        mine=$(tokens_of $backend "$prompt") && other=$(tokens_of cpu "$prompt") && [ -n "$mine" ] || { row e2e "gimbal generate" "$prompt" - - - - - - FAILED; return 1; }
        printf '%s\n  %s: %s\n  cpu: %s\n' "$prompt" $backend "$mine" "$other"
        all=$((all + 1))
        [ "$mine" = "$other" ] && equal=$((equal + 1))
    done
    # tokens_test has judged near-ties; a text may part at one, but not most texts.
    if [ $((2 * equal)) -gt $all ]; then row e2e "gimbal generate" "$equal of $all texts equal" $equal texts - - - - ok
    else row e2e "gimbal generate" "$equal of $all texts equal" $equal texts - - - - FAILED; wrong=1; fi
    return $wrong
}

# --- the end ---------------------------------------------------------------------------------------------------------

table() {
    awk -F '\t' 'BEGIN {printf "\n%-12s %-26s %-30s %12s %-8s %8s %9s %-7s %-24s %s\n", "step", "item", "size", "value", "unit", "spread%", "fraction", "of", "bound", "verdict"}
                 {printf "%-12s %-26s %-30s %12s %-8s %8s %9s %-7s %-24s %s\n", $1, $2, $3, $4, $5, $6, $7, $8, $9, $10}' "$OUT/rows.tsv"
    printf '\n'
    awk -F '\t' '{printf "%-12s %-10s %5s s  %s\n", $1, $2, $3, $4}' "$OUT/steps.tsv"
    awk -F '\t' '$10 == "met" {met++} $10 == "missed" {missed[++n] = $2 ", " $3 ": " $4 " " $5 " (" $7 " of " $8 "), wanted " $9}
                 END {if (met + n) {printf "\n%d of %d bounds met\n", met, met + n; for (i = 1; i <= n; i++) print "  missed: " missed[i]}}' "$OUT/rows.tsv"
}

json() {
    awk -F '\t' -v date="$(date -u +%Y-%m-%dT%H:%M:%SZ)" -v revision="$(git -C "$ROOT" describe --always --dirty 2>/dev/null || echo unknown)" \
        -v emulated="$EMULATED" -v device="$DEVICE" -v seed="$SEED" -v seconds="$SECONDS" '
        function text(s) {gsub(/\\/, "\\\\", s); gsub(/"/, "\\\"", s); return s == "-" || s == "" ? "null" : "\"" s "\""}
        function number(s) {return s ~ /^-?[0-9]+(\.[0-9]+)?$/ ? s : "null"}
        {file = FILENAME == ARGV[1] ? 1 : 2}
        file == 1 {steps = steps (steps ? ",\n    " : "") "{\"step\": " text($1) ", \"status\": " text($2) ", \"seconds\": " number($3) ", \"reason\": " text($4) "}"}
        file == 2 {rows = rows (rows ? ",\n    " : "") "{\"step\": " text($1) ", \"item\": " text($2) ", \"size\": " text($3) ", \"value\": " number($4) \
                   ", \"unit\": " text($5) ", \"spread_percent\": " number($6) ", \"fraction\": " number($7) ", \"of\": " text($8) \
                   ", \"bound\": " text($9) ", \"verdict\": " text($10) "}"}
        END {printf "{\"schema\": 1, \"date\": %s, \"revision\": %s, \"emulated\": %s, \"device\": %s, \"seed\": %s, \"seconds\": %s,\n  \"steps\": [\n    %s],\n  \"rows\": [\n    %s]}\n",
             text(date), text(revision), emulated ? "true" : "false", text(device), seed, seconds, steps, rows}' "$OUT/steps.tsv" "$OUT/rows.tsv" >"$OUT/device_check.json"
}

run_step() {
    local step=$1 limit status word reason= begin=$SECONDS left=$((LIMIT - SECONDS))
    limit=$(limit_of "$step")
    [ "$limit" -le $left ] || limit=$left
    if [ "$limit" -le 0 ]; then
        printf '%s\t%s\t%s\t%s\n' "$step" skipped 0 "the $LIMIT seconds are over" >>"$OUT/steps.tsv"
        return 0
    fi
    rm -f "$OUT/$step.reason"
    STEP=$step STEP_LIMIT=$limit timeout -k 5 "$limit" "$0" --run "$step" >"$OUT/$step.log" 2>&1
    status=$?
    case $status in
        0) word=ok ;;
        77) word=skipped reason=$(cat "$OUT/$step.reason" 2>/dev/null || tail -1 "$OUT/$step.log") ;;
        124 | 137) word="timed out" reason="its $limit seconds were over, see $OUT/$step.log" ;;
        *) word=failed reason="see $OUT/$step.log" ;;
    esac
    printf '%s\t%s\t%s\t%s\n' "$step" "$word" $((SECONDS - begin)) "$reason" >>"$OUT/steps.tsv"
    printf '%-12s %s%s\n' "$step" "$word" "${reason:+: $reason}"
    case $status in
        0 | 77) return 0 ;;
        *) tail -20 "$OUT/$step.log" | sed 's/^/    /'; return 1 ;;
    esac
}

EMULATED=${EMULATED:-0} BUILD=${BUILD:-} OUT=${OUT:-} SEED=${SEED:-} ONLY= BUILT=0
while [ $# -gt 0 ]; do
    case $1 in
        --help) usage; exit 0 ;;
        --list) list; exit 0 ;;
        --run) "step_$2"; exit ;;    # this script calls itself so, to give a step its limit
        --emulated) EMULATED=1 ;;
        --built) BUILT=1 ;;
        --only | --build | --out | --limit | --seed)
            [ $# -gt 1 ] || fail_usage "$1 needs a value"
            case $1 in --only) ONLY=$2 ;; --build) BUILD=$2 ;; --out) OUT=$2 ;; --limit) LIMIT=$2 ;; --seed) SEED=$2 ;; esac
            shift ;;
        *) fail_usage "there is no option $1" ;;
    esac
    shift
done
for step in ${ONLY//,/ }; do [ -n "$(limit_of "$step")" ] || fail_usage "there is no step $step"; done
[[ $LIMIT =~ ^[0-9]{1,6}$ ]] || fail_usage "a limit is a number of seconds, not $LIMIT"
[ -z "$SEED" ] || [[ $SEED =~ ^[0-9]{1,18}$ ]] || fail_usage "a seed is a number, not $SEED"
if [ "$EMULATED" = 0 ] && [ "$ONLY" != build ] && ! there_is_a_gpu; then
    echo "device_check: there is no GPU here; --emulated runs the same steps on the emulator"
    exit 77
fi

if [ "$EMULATED" = 1 ]; then BUILD=${BUILD:-$ROOT/build/release}; else BUILD=${BUILD:-$ROOT/build/device}; fi
OUT=${OUT:-$BUILD/device_check}
SEED=$((10#${SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}))
mkdir -p "$OUT" || exit 1
OUT=$(cd "$OUT" && pwd)
if [ "$EMULATED" = 1 ]; then DEVICE=emulator; else DEVICE=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -1); fi
export EMULATED BUILD OUT SEED
: >"$OUT/rows.tsv"
: >"$OUT/steps.tsv"
[ "$EMULATED" = 0 ] || echo "EMULATED: what follows says whether the steps work; no time is a measurement"

wrong=0
for step in $(steps); do
    [ -z "$ONLY" ] || [[ ",$ONLY," == *",$step,"* ]] || continue
    [ "$step" != build ] || [ $BUILT = 0 ] || continue
    run_step "$step" || wrong=1
    [ "$step" != build ] || [ $wrong = 0 ] || break    # nothing to run
done
json
table
echo "results: $OUT/device_check.json"
exit $wrong
