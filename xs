#!/usr/bin/env bash
# xs: installs what is missing, builds, tests and shows xstage. `./xs help` says how.
# It starts from a bare Debian (bash, coreutils, sed, awk, apt-get); everything else it brings itself.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

# Package and what it is for. The one list: it is checked, shown and installed.
build_packages='g++                 the compiler
cmake               describes the build
ninja-build         runs the build
ccache              compiles nothing twice
libgtest-dev        tests (GoogleTest)
libcli11-dev        the command line (CLI11)
nlohmann-json3-dev  JSON
libfmt-dev          text (fmt)
libnlopt-dev        fits (NLopt)
libeigen3-dev       intervals of fits (Eigen)
libdnnl-dev         matrix products on the host (oneDNN)
libxxhash-dev       checksums (xxHash)'
fuzz_packages='clang               the compiler of the fuzz programs
libclang-rt-14-dev  libFuzzer and the sanitizers'
format_packages='clang-format        formats the C++ sources'

install=yes
jobs=$(nproc)

usage() {
  cat <<END
usage: ./xs COMMAND [--no-install]

  demo                          build, fit measured ports, run a MoE layer in two orders, predict it
  test [PRESET] [-- ARGUMENT…]  build, then run the tests; what follows -- goes to ctest
  build [PRESET]                configure and build in build/PRESET; the log is build/PRESET.log. Preset cuda also fills
                                build/carry, which runs wherever there is glibc 2.36 and an NVIDIA driver
  fuzz [SECONDS]                build the fuzz programs, run each for its share of SECONDS (60 if not given)
  format [--check]              format the C++ sources, or only say which ones are not
  tree                          check the rules of the tree (tools/check_tree)
  help                          this text

presets: $(presets) (cpu if none is named)
Missing packages are listed, then installed with apt-get. --no-install: never install; say what is missing.
exit codes: 0 done, 1 failed, 2 usage, 3 something is missing on this machine, 130 interrupted
END
}

die() {  # die CODE LINE...
  printf '%s\n' "xs: $2" "${@:3}" >&2
  exit "$1"
}

presets() {
  sed -n '/"testPresets"/,/\]/p' CMakePresets.json | grep -o '"name": "[^"]*"' | cut -d'"' -f4 | paste -sd' '
}

# --- what the machine must have ---------------------------------------------------------------------------

on_debian() { command -v apt-get >/dev/null; }

installed() { [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed* ]]; }

# need LIST: installs what is missing of a package list, or says how to and leaves with 3.
need() {
  on_debian || return 0  # elsewhere the packages have other names: the configure step finds out
  local row missing=() root=()
  while read -r row; do
    installed "${row%% *}" || missing+=("$row")
  done <<<"$1"
  ((${#missing[@]})) || return 0

  local get=(apt-get install -y --no-install-recommends "${missing[@]%% *}")
  local by_hand="apt-get update && ${get[*]}" why="not installed, as --no-install asks" how="install them with"
  if ((EUID)) && ! command -v sudo >/dev/null; then
    install=no why="not installed: this needs root, and there is no sudo" how="run as root"
  elif ((EUID)); then
    by_hand="sudo apt-get update && sudo ${get[*]}"
    root=(sudo)
    [[ -t 0 ]] || root+=(-n)  # a password only where somebody can type it
  fi
  if [[ $install == no ]]; then
    die 3 "these packages are missing:" "${missing[@]/#/  }" "$why; $how" "  $by_hand"
  fi
  printf '%s\n' "missing here, installed now with apt-get${root[0]+ (sudo)}:" "${missing[@]/#/  }"
  # A machine that has just started may still hold the package lock for its own updates.
  local options=(-o DPkg::Lock::Timeout=120 -o Acquire::Retries=3)
  start_log build/install.log
  # A broken list of somebody else's packages is no reason to stop; if it was ours, the installation fails.
  phase "package lists" build/install.log "${root[@]}" apt-get "${options[@]}" update || true
  failure=3
  must "install ${#missing[@]} packages" build/install.log \
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive "${get[@]}" "${options[@]}"
  failure=1
}

need_nvcc() {
  command -v nvcc >/dev/null || PATH=$PATH:/usr/local/cuda/bin
  command -v nvcc >/dev/null ||
    die 3 "preset cuda needs nvcc, on PATH or in /usr/local/cuda/bin; install the CUDA toolkit, or use preset cpu"
}

# --- phases: one line each on the terminal, the rest in a log ---------------------------------------------

failure=1  # exit code of a phase that must not fail

start_log() { mkdir -p "$(dirname "$1")" && : >"$1"; }

phase() {  # phase NAME LOG COMMAND...
  local name=$1 log=$2 start=$SECONDS status=0 outcome=
  printf '%-28s' "$name"
  "${@:3}" >>"$log" 2>&1 </dev/null || status=$?
  ((status == 0)) || outcome=", failed"
  printf '%4d s%s\n' $((SECONDS - start)) "$outcome"
  return $status
}

must() {  # as phase, but shows the end of the log and leaves when the command fails
  phase "$@" && return
  tail -n 40 "$2" >&2
  die $failure "$1 failed; the whole log is $2"
}

# --- commands ---------------------------------------------------------------------------------------------

build() {  # build PRESET [TARGET]
  local preset=$1 target=${2-all} log=build/$1.log
  [[ $preset != cuda ]] || need_nvcc
  need "$build_packages"
  start_log "$log"
  if on_debian; then
    must "configure $preset" "$log" cmake --preset "$preset"
  elif ! phase "configure $preset" "$log" cmake --preset "$preset"; then
    tail -n 40 "$log" >&2
    die 3 "no apt-get here, so I install nothing. Needed (Debian names):" "$build_packages"
  fi
  must "build $preset" "$log" cmake --build --preset "$preset" -j "$jobs" --target "$target"
  if [[ $preset == cuda ]]; then
    rm -rf build/carry
    must "gather build/carry" "$log" cmake --install build/cuda --prefix build/carry --strip
  fi
}

# Each finished test is one line of ctest's: "3/9 Test #3: name ....   Passed    0.01 sec". Whatever is neither
# passed nor skipped has failed, so that a crash, a timeout or a program that did not start is never lost.
count_tests() {
  awk '/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: / {
         if (/ Passed +[0-9.]+ sec/) passed++
         else if (/\*\*\*Skipped|\(Disabled\)/) skipped++
         else failed++
       }
       END { print passed + 0, failed + 0, skipped + 0 }' "$1"
}

run_tests() {  # run_tests PRESET [CTEST ARGUMENT...]
  local preset=$1 log=build/$1-test.log status=0 passed failed skipped
  shift
  build "$preset"
  start_log "$log"
  local ctest=(ctest --preset "$preset" -j "$jobs")
  if (($#)); then  # who gives arguments wants to see what they do
    "${ctest[@]}" "$@" 2>&1 </dev/null | tee "$log" || status=$?
  else
    phase "test $preset" "$log" "${ctest[@]}" || status=$?
    ((status == 0)) || grep -vE '^ *[0-9]+/[0-9]+ Test .* Passed |^ *Start +[0-9]+: ' "$log" || true
  fi
  read -r passed failed skipped < <(count_tests "$log")
  ((passed + failed)) || echo "xs: no test ran" >&2
  echo "$passed passed, $failed failed$( ((skipped == 0)) || echo ", $skipped skipped")"
  ((status == 0 && failed == 0 && passed > 0))
}

# Runs one fuzz program from its own seeds; an input that was a finding once is tried first. Prints a row of the table.
fuzz_one() {  # fuzz_one PROGRAM SECONDS
  local name folder log status=0 written
  name=$(basename "$1") folder=build/fuzz/$name log=build/fuzz/$name.log
  rm -rf "$folder/corpus"
  mkdir -p "$folder/corpus" "$folder/findings"
  # What ASan keeps of freed memory counts as the program's: little of it, so that the limit is the program's own.
  ASAN_OPTIONS=quarantine_size_mb=16 nice "$1" -seed=1 -max_total_time="$2" -timeout=10 -rss_limit_mb=512 \
    -print_final_stats=1 -artifact_prefix="$folder/findings/" "$folder/corpus" "$folder/findings" >"$log" 2>&1 \
    </dev/null || status=$?
  figure() { sed -n "s/^stat::$1: *//p" "$log"; }
  printf '%-16s %12s %12s %10d\n' "$name" "$(figure number_of_executed_units)" "$(figure average_exec_per_sec)" \
    $((status != 0))
  ((status)) || return 0
  written=$(sed -n 's/.*Test unit written to //p' "$log")
  echo "  ${written:-no input was kept}; the report is $log"
  return 1
}

fuzz() {  # fuzz SECONDS
  local program programs passed=0 failed=0
  need "$fuzz_packages"
  command -v clang++ >/dev/null || die 3 "fuzz needs clang++ and its libFuzzer"
  build cpu-fuzz fuzzers
  programs=(build/cpu-fuzz/fuzz/*_fuzz)
  printf '%-16s %12s %12s %10s\n' program executions per_second findings
  for program in "${programs[@]}"; do
    if fuzz_one "$program" $(($1 / ${#programs[@]} + 1)); then passed=$((passed + 1)); else failed=$((failed + 1)); fi
  done
  echo "$passed passed, $failed failed"
  ((failed == 0))
}

format() {
  local file files wrong=()
  need "$format_packages"
  command -v clang-format >/dev/null || die 3 "format needs clang-format"
  mapfile -t files < <(find src -name '*.[ch]pp' -o -name '*.cu' -o -name '*.cuh' | sort)
  for file in "${files[@]}"; do
    clang-format "$file" | cmp -s - "$file" || wrong+=("$file")
  done
  if [[ ${1-} == --check ]] && ((${#wrong[@]})); then
    die 1 "not formatted; run ./xs format:" "${wrong[@]/#/  }"
  fi
  ((${#wrong[@]} == 0)) || clang-format -i "${wrong[@]}"
  echo "format: ${#files[@]} files, ${#wrong[@]} changed"
}

step() {  # step NAME TEXT COMMAND...: says what the command does, shows it, runs it, keeps what it prints
  printf '\n%s\n$ %s\n' "$2" "${*:3}"
  "${@:3}" | tee "$demo_out/$1.txt"
}

# What a step's command said in its closing line that begins so.
closing() { sed -n "s/^=> \($2.*\)$/\1/p" "$demo_out/$1.txt"; }
output_hash() { sed -n 's/^output hash \([0-9a-f]*\),.*/\1/p' "$demo_out/$1.txt"; }

demo_out=build/demo

demo() {
  local program=build/cpu/xstage
  build cpu xstage
  mkdir -p "$demo_out"
  step fit "Fit the ports of an H200 to measured bursts and gaps." \
    "$program" fit data/h200_burst_gap.csv -o "$demo_out"/h200.json
  local moe=("$program" run moe --model deepseek-v3 --ranks 8 --tokens-per-rank 64 --shrink 16
    --machine "$demo_out"/h200.json)
  step serial "Run a DeepSeek-V3 layer, 1/16 in size, on 8 CPU ranks: all of Linear-1, then all of Linear-2." \
    "${moe[@]}" --schedule serial
  step wave "The same layer in waves of experts, so that results leave while others are still computed." \
    "${moe[@]}" --schedule wave --trace "$demo_out"/wave.trace.json
  [[ -n $(output_hash serial) && $(output_hash serial) == "$(output_hash wave)" ]] ||
    die 1 "the two orders gave different results"
  printf '\nIn three lines:\n1. %s\n2. %s Both orders gave the same bits (%s).\n3. %s\n' "$(closing fit Measured)" \
    "$(closing wave Executed)" "$(output_hash wave)" "$(closing wave Predicted)"
}

# --- the command line -------------------------------------------------------------------------------------

# Without the trap, a child that handles Ctrl-C itself (ninja does) would look like a failed phase.
trap 'echo; exit 130' INT

words=() rest=()
while (($#)); do
  case $1 in
    --no-install) install=no ;;
    --) rest=("${@:2}") && break ;;
    *) words+=("$1") ;;
  esac
  shift
done
command=${words[0]-help}
arguments=("${words[@]:1}")

most=0  # arguments that the command takes
case $command in
  build | test | fuzz | format) most=1 ;;
  demo | tree | help | -h | --help) ;;
  -*) die 2 "unknown option '$command'; ./xs help lists them" ;;
  *) die 2 "unknown command '$command'; ./xs help lists them" ;;
esac
((${#arguments[@]} <= most)) || die 2 "$command takes no '${arguments[most]}'; see ./xs help"
((${#rest[@]} == 0)) || [[ $command == test ]] || die 2 "only test takes arguments after --; see ./xs help"

argument=${arguments[0]-}
case $command in
  format)
    [[ -z $argument || $argument == --check ]] || die 2 "format takes no '$argument', only --check"
    ;;
  fuzz)
    argument=${argument:-60}
    [[ $argument =~ ^[1-9][0-9]{0,5}$ ]] || die 2 "fuzz takes a whole number of seconds, found '$argument'"
    ;;
  build | test)
    [[ $argument != -* ]] || die 2 "unknown option '$argument'; arguments for ctest stand after --"
    argument=${argument:-cpu}
    [[ " $(presets) " == *" $argument "* ]] || die 2 "unknown preset '$argument'; there are: $(presets)"
    ;;
esac

case $command in
  demo) demo ;;
  build) build "$argument" ;;
  test) run_tests "$argument" "${rest[@]}" ;;
  fuzz) fuzz "$argument" ;;
  format) format "$argument" ;;
  tree) tools/check_tree ;;
  *) usage ;;
esac
