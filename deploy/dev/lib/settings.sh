# shellcheck shell=bash disable=SC2154 # variables of stack.sh
# Ports, the file that keeps them, and the lock. Sourced by stack.sh.

# Fields: variable, default, the part that listens there.
port_table() {
  cat <<TABLE
SLIPWAY_DEV_API_PORT 8080 slipway
SLIPWAY_DEV_TEMPORAL_PORT 7233 temporal
SLIPWAY_DEV_UI_PORT 8233 slipway
SLIPWAY_DEV_UI_UPSTREAM_PORT 8234 temporal
SLIPWAY_DEV_KUBE_PORT 16443 kube-apiserver
SLIPWAY_DEV_ETCD_PORT 12379 etcd
SLIPWAY_DEV_ETCD_PEER_PORT 12380 etcd
SLIPWAY_DEV_CONTROLLER_MANAGER_PORT 20257 kube-controller-manager
SLIPWAY_DEV_SCHEDULER_PORT 20259 kube-scheduler
SLIPWAY_DEV_KWOK_PORT 20247 kwok-controller
TABLE
}

say() { echo "stack: $*"; }

is_port() { case $1 in '' | *[!0-9]*) return 1 ;; *) [ "$1" -ge 1 ] && [ "$1" -le 65535 ] ;; esac; }

saved() { sed -n "s/^$1=//p" "$dir/env" 2>/dev/null; }

# Sets the port variables to what the stack was last started with; fails if it never was.
load_ports() {
  local name value rest
  [ -f "$dir/env" ] || return 1
  while read -r name rest; do
    value=$(saved "$name")
    is_port "$value" || return 1
    printf -v "$name" %s "$value"
  done < <(port_table)
}

any_part_running() {
  local part
  for part in $parts; do if running "$part"; then return 0; fi; done
  return 1
}

# Sets the port variables for `up`. A stack with a running part keeps its ports.
choose_ports() {
  local wanted
  if [ -n "$own_dir" ]; then
    load_ports && return 0
    choose_free_ports
    write_env
    return 0
  fi
  wanted=$(wanted_ports)
  if any_part_running && load_ports; then
    refuse_moved_ports "$wanted"
    return 0
  fi
  local name value
  while read -r name value; do printf -v "$name" %s "$value"; done <<<"$wanted"
  write_env
}

# Prints lines of variable and port: from the environment, else the stack's previous ports, else the defaults.
wanted_ports() {
  local name default rest value offset=${SLIPWAY_DEV_PORT_OFFSET:-}
  case $offset in *[!0-9]*) fail "SLIPWAY_DEV_PORT_OFFSET is '$offset': want a whole number" ;; esac
  while read -r name default rest; do
    value=${!name:-}
    if [ -z "$value" ] && [ -z "$offset" ]; then value=$(saved "$name"); fi
    if [ -z "$value" ]; then value=$((default + ${offset:-0})); fi
    is_port "$value" || fail "$name is '$value': want a port from 1 to 65535"
    echo "$name $value"
  done < <(port_table)
}

refuse_moved_ports() {
  local name value
  while read -r name value; do
    if [ "$name" = SLIPWAY_DEV_API_PORT ] || [ "$name" = SLIPWAY_DEV_UI_PORT ] || [ "$(saved "$name")" = "$value" ]; then continue; fi
    fail "the stack runs with $name=$(saved "$name"), but $value is requested: stop it first ('make down'), then start it again"
  done <<<"$1"
}

listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Chooses consecutive ports below the system's ephemeral port range.
choose_free_ports() {
  local name rest base port try free
  for try in $(seq 100); do
    base=$((21000 + RANDOM % 1100 * 10))
    port=$base free=yes
    while read -r name rest; do
      if listens "$port"; then free=; fi
      printf -v "$name" %s "$port"
      port=$((port + 1))
    done < <(port_table)
    if [ -n "$free" ]; then return 0; fi
  done
  fail "found no free ports between 21000 and 32000 after $try attempts"
}

# Reports all ports of the given parts that other processes use, before anything is started.
check_ports() {
  local name default part taken=
  while read -r name default part; do
    case " $* " in *" $part "*) ;; *) continue ;; esac
    if running "$part" || ! listens "${!name}"; then continue; fi
    echo "stack: port ${!name} on 127.0.0.1, wanted by $part ($name), is in use by $(port_owner "${!name}")" >&2
    taken=yes
  done < <(port_table)
  if [ -z "$taken" ]; then return 0; fi
  if [ -n "$own_dir" ]; then fail "end that process, or delete $dir to choose other ports"; fi
  fail "end that process, or set the variable in brackets to another port, or SLIPWAY_DEV_PORT_OFFSET=100 to move all ports"
}

# Prints name and pid of the process that listens on a port, if the system's tools show it.
port_owner() {
  local found=
  if command -v lsof >/dev/null; then
    found=$(lsof -nP -iTCP:"$1" -sTCP:LISTEN -Fpc 2>/dev/null | sed -n '1s/^p//p; 2s/^c//p' | tr '\n' ' ')
    if [ -n "$found" ]; then found="$(cut -d' ' -f2- <<<"$found")(pid ${found%% *})"; fi
  elif command -v ss >/dev/null; then
    found=$(ss -ltnpH "sport = :$1" 2>/dev/null | sed -n 's/.*users:(("\([^"]*\)",pid=\([0-9]*\).*/\1 (pid \2)/p' | head -n 1)
  fi
  echo "${found:-another process}"
}

write_env() {
  local name rest
  {
    while read -r name rest; do echo "$name=${!name}"; done < <(port_table)
    echo "SLIPWAY_DEV_DIR=$dir"
    echo "SLIPWAY_DEV_BIN=$bin"
    echo "SLIPWAY_DEV_KUBECONFIG=$dir/kubeconfig"
    echo "SLIPWAY_DEV_KUBE_ADDRESS=https://127.0.0.1:$SLIPWAY_DEV_KUBE_PORT"
    echo "SLIPWAY_DEV_TEMPORAL_ADDRESS=127.0.0.1:$SLIPWAY_DEV_TEMPORAL_PORT"
    echo "SLIPWAY_DEV_TEMPORAL_UI=http://127.0.0.1:$SLIPWAY_DEV_UI_PORT"
    echo "SLIPWAY_DEV_TEMPORAL_UI_UPSTREAM=http://127.0.0.1:$SLIPWAY_DEV_UI_UPSTREAM_PORT"
    echo "SLIPWAY_DEV_API_ADDRESS=127.0.0.1:$SLIPWAY_DEV_API_PORT"
  } >"$dir/env.partial"
  mv "$dir/env.partial" "$dir/env"
}

show_addresses() {
  cat <<ADDRESSES
  Temporal     127.0.0.1:$SLIPWAY_DEV_TEMPORAL_PORT   (Web UI http://127.0.0.1:$SLIPWAY_DEV_UI_UPSTREAM_PORT)
  Kubernetes   https://127.0.0.1:$SLIPWAY_DEV_KUBE_PORT   (kubeconfig $dir/kubeconfig)
  logs         $dir/logs
ADDRESSES
}

# Only one `up` or `down` of a folder runs at a time. A lock whose owner is dead is taken over.
take_lock() {
  local owner tries=0
  until mkdir "$dir/lock" 2>/dev/null; do
    owner=$(cat "$dir/lock/pid" 2>/dev/null || true)
    if [ -n "$owner" ] && ! kill -0 "$owner" 2>/dev/null; then
      rm -rf "$dir/lock"
      continue
    fi
    tries=$((tries + 1))
    if [ -z "$owner" ] && [ $tries -gt 25 ]; then # its owner died before it wrote its pid
      rm -rf "$dir/lock"
      continue
    fi
    if [ $tries -eq 5 ]; then say "waiting for another stack.sh (pid ${owner:-unknown}) to finish …"; fi
    if [ $tries -gt 600 ]; then fail "another stack.sh (pid ${owner:-unknown}) has held $dir/lock for two minutes: end it, or remove that folder"; fi
    sleep 0.2
  done
  echo $$ >"$dir/lock/pid"
  trap 'rm -rf "$dir/lock"; if [ -n "$own_dir$delete" ]; then rmdir "$dir" 2>/dev/null || true; fi' EXIT
}
