#!/usr/bin/env bash
# The local stack: a Temporal server with its Web UI on one SQLite file, and a Kubernetes control plane (etcd, API
# server, controller manager, scheduler) with nodes simulated by KWOK. Everything listens on 127.0.0.1 and is in one
# folder.
#
#   deploy/dev/stack.sh up                 build what is missing, start what is not running, wait until it serves
#   deploy/dev/stack.sh down [--delete]    stop every process; the data stays for the next `up`, unless --delete. Without --dir
#                                          it also stops the stacks that were started with --dir from this clone
#   deploy/dev/stack.sh status             show the processes; exit code 1 if a part does not run
#   deploy/dev/stack.sh env                print the addresses as KEY=VALUE lines, as in <folder>/env
#
# For tests that break things (PART is one that `status` lists):
#
#   deploy/dev/stack.sh stop PART          SIGTERM, and wait until it has ended
#   deploy/dev/stack.sh kill PART          kill -9
#   deploy/dev/stack.sh freeze|thaw PART   SIGSTOP and SIGCONT: it still accepts connections and answers nothing
#   deploy/dev/stack.sh start PART         start it again with its data, and wait until it serves; with kube-apiserver its
#                                          clients in the stack are restarted, because they reconnect slowly
#   deploy/dev/stack.sh spawn NAME -- COMMAND…
#                                          run a slipway process as a part of the stack (log, pid file, ended by `down`);
#                                          NAME starts with `slipway`, COMMAND is a binary of .dev/bin
#
# The folder is .dev of this clone. With `--dir FOLDER` (before any `--`) each command works on a separate stack in
# FOLDER: its first start chooses free ports, and writes them to FOLDER/env.
#
# Ports of the stack in .dev. `up` reads these variables; a variable that is not set has the value of the last `up`. A
# running stack keeps its ports.
#
#   variable                              default
#   SLIPWAY_DEV_API_PORT                  8080    slipway's HTTP API (the stack only writes it to env); the demo's Kuscia API is 2 and 3 above it
#   SLIPWAY_DEV_TEMPORAL_PORT             7233    Temporal's gRPC API
#   SLIPWAY_DEV_UI_PORT                   8233    Temporal's Web UI, as slipway publishes it (the stack only writes it to env)
#   SLIPWAY_DEV_UI_UPSTREAM_PORT          8234    Temporal's Web UI itself, for 127.0.0.1 and localhost only
#   SLIPWAY_DEV_KUBE_PORT                 16443   Kubernetes API server
#   SLIPWAY_DEV_ETCD_PORT                 12379   etcd, for clients
#   SLIPWAY_DEV_ETCD_PEER_PORT            12380   etcd, for peers
#   SLIPWAY_DEV_CONTROLLER_MANAGER_PORT   20257   kube-controller-manager's health and metrics
#   SLIPWAY_DEV_SCHEDULER_PORT            20259   kube-scheduler's health and metrics
#   SLIPWAY_DEV_KWOK_PORT                 20247   KWOK's health and metrics
#   SLIPWAY_DEV_PORT_OFFSET               0       added to every default above; enough for a second clone on one machine
#
# <folder>/env has these, and SLIPWAY_DEV_KUBECONFIG (a person's), SLIPWAY_DEV_TEMPORAL_ADDRESS, SLIPWAY_DEV_TEMPORAL_UI,
# SLIPWAY_DEV_TEMPORAL_UI_UPSTREAM, SLIPWAY_DEV_KUBE_ADDRESS, SLIPWAY_DEV_API_ADDRESS, SLIPWAY_DEV_BIN. <folder>/logs has a log of each part.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
bin=$root/.dev/bin

# shellcheck source=deploy/dev/lib/settings.sh
. "$here/lib/settings.sh"
# shellcheck source=deploy/dev/lib/process.sh
. "$here/lib/process.sh"
# shellcheck source=deploy/dev/lib/temporal.sh
. "$here/lib/temporal.sh"
# shellcheck source=deploy/dev/lib/kubernetes.sh
. "$here/lib/kubernetes.sh"

# In the order of their dependencies.
parts="temporal etcd kube-apiserver kube-controller-manager kube-scheduler kwok-controller"

usage() {
  sed -n '2,/^set -euo/p' "${BASH_SOURCE[0]}" | sed '$d; s/^# \{0,1\}//'
}

fail() {
  echo "stack: $*" >&2
  exit 1
}

# The API server spends a sixth of its time on garbage collection, and memory is cheaper: a part may use a sixth of the
# machine's memory, at least 1200 MiB, before it collects as usual. Near its memory limit it would do little but
# collect.
collect_less() {
  local sixth
  sixth=$(awk '/^MemTotal:/ { print int($2 / 1024 / 6) }' /proc/meminfo 2>/dev/null || echo 0)
  export GOGC=${GOGC:-300} GOMEMLIMIT=${GOMEMLIMIT:-$((sixth > 1200 ? sixth : 1200))MiB}
}

up() {
  "$here/build.sh" stack
  collect_less
  mkdir -p "$dir/logs" "$dir/run"
  take_lock
  if [ -n "$own_dir" ]; then remember_stack; fi
  choose_ports
  # shellcheck disable=SC2086 # a list of words
  check_ports $parts
  local started=$SECONDS temporal_starts=
  if ! running temporal; then
    say "starting Temporal …"
    spawn_temporal
    temporal_starts=yes
  fi
  start_kubernetes
  if [ -n "$temporal_starts" ]; then wait_for_temporal; fi
  write_env
  say "the stack is up ($((SECONDS - started)) s)"
  show_addresses
}

down() {
  local part
  [ -d "$dir" ] || return 0
  take_lock
  for part in $(spawned_names) $(reversed_parts); do stop_part "$part"; done
  stop_leftovers
  if [ -n "$own_dir" ]; then forget_stack; else stop_other_stacks; fi
  if [ "$delete" = yes ]; then
    delete_data
    say "the stack is down and its data deleted"
  else
    say "the stack is down; its data is kept in $dir (stack.sh down --delete removes it)"
  fi
}

status() {
  local part state=0
  load_ports || { echo "never started in $dir"; return 1; }
  for part in $parts $(spawned_names); do
    if running "$part"; then
      printf '%-24s running  pid %-8s %s\n' "$part" "$(pid_of "$part")" "$dir/logs/$part.log"
    else
      printf '%-24s stopped  %-12s %s\n' "$part" "" "$dir/logs/$part.log"
      state=1
    fi
  done
  show_addresses
  return $state
}

start_part() {
  require_part "$1"
  load_ports || fail "no stack in $dir: start it with '$0 up'"
  if running "$1"; then return 0; fi
  check_ports "$1"
  collect_less
  case $1 in
    temporal) spawn_temporal && wait_for_temporal ;;
    *) start_component "$1" ;;
  esac
}

require_part() {
  local part
  for part in $parts $(spawned_names); do if [ "$part" = "$1" ]; then return 0; fi; done
  fail "unknown part '$1': the parts are $parts"
}

signal_part() {
  require_part "$2"
  running "$2" || fail "$2 does not run"
  kill "-$1" "$(pid_of "$2")"
}

kill_part() {
  signal_part KILL "$1"
  wait_until_gone "$1" 50 || fail "$1 still runs after kill -9"
}

spawn_slipway() {
  local name=$1
  shift
  case $name in slipway*) ;; *) fail "spawn: the name '$name' must start with slipway" ;; esac
  [ "${1:-}" = "--" ] || fail "spawn: put -- before the command"
  shift
  case ${1:-} in "$bin"/slipway*) ;; *) fail "spawn: the command must be a slipway binary of $bin, not '${1:-}'" ;; esac
  mkdir -p "$dir/logs" "$dir/run"
  if running "$name"; then fail "$name is already running (pid $(pid_of "$name")): stop it first"; fi
  spawn "$name" "$@"
}

command=${1:-help}
if [ $# -gt 0 ]; then shift; fi
dir=$root/.dev
own_dir=
delete=
operands=()
while [ $# -gt 0 ]; do
  case $1 in
    --dir)
      [ -n "${2:-}" ] || fail "--dir needs a folder"
      mkdir -p "$2"
      dir=$(cd "$2" && pwd)
      own_dir=yes
      shift 2
      ;;
    --delete) delete=yes && shift ;;
    --) operands+=("$@") && break ;;
    *) operands+=("$1") && shift ;;
  esac
done
set -- ${operands[@]+"${operands[@]}"}
cluster=$dir/kwok/clusters/$cluster_name
export KWOK_WORKDIR=$dir/kwok

case $command in
  up | down | status | env) [ $# -eq 0 ] || fail "$command takes no '$1': see '$0 help'" ;;
  start | stop | kill | freeze | thaw) [ $# -eq 1 ] || fail "$command needs exactly one part, of: $parts" ;;
esac
case $command in
  up | down | status) "$command" ;;
  env) cat "$dir/env" 2>/dev/null || fail "no stack in $dir: start it with '$0 up'" ;;
  start) start_part "$1" ;;
  stop) require_part "$1" && stop_part "$1" ;;
  kill) kill_part "$1" ;;
  freeze) signal_part STOP "$1" ;;
  thaw) signal_part CONT "$1" ;;
  spawn) spawn_slipway "$@" ;;
  help | -h | --help) usage ;;
  *) fail "unknown command '$command': see '$0 help'" ;;
esac
