# shellcheck shell=bash disable=SC2154 # variables of stack.sh
# Starting, finding and ending the processes of the stack. Sourced by stack.sh.

# A process is identified by its pid file and by a path of ours on its command line, so that a reused pid is never taken
# for ours.
mark_of() {
  case $1 in
    temporal) echo "$dir/temporal.db" ;;
    slipway*) echo "$bin/slipway" ;;
    *) echo "$cluster/" ;;
  esac
}

pid_of() { cat "$dir/run/$1.pid" 2>/dev/null || true; }

running() {
  local pid
  pid=$(pid_of "$1")
  [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null && command_line "$pid" | grep -qF -- "$(mark_of "$1")"
}

# Empty for a process that has ended and is not reaped yet.
command_line() { ps -ww -o args= -p "$1" 2>/dev/null | grep -v '<defunct>' || true; }

# spawn NAME COMMAND…: starts it in a process group of its own, so that Ctrl-C in the terminal does not reach it.
spawn() {
  local name=$1
  shift
  rotate_log "$dir/logs/$name.log"
  set -m
  (cd "$dir" && exec nohup "$@" </dev/null >>"$dir/logs/$name.log" 2>&1) &
  echo $! >"$dir/run/$name.pid"
  set +m
  disown
}

rotate_log() {
  if [ -f "$1" ] && [ "$(wc -c <"$1")" -gt 20000000 ]; then mv "$1" "$1.old"; fi
}

spawned_names() {
  local file
  for file in "$dir"/run/slipway*.pid; do
    if [ -f "$file" ]; then basename "$file" .pid; fi
  done
}

reversed_parts() {
  local part out=
  for part in $parts; do out="$part $out"; done
  echo "$out"
}

# wait_until_gone NAME TENTHS
wait_until_gone() {
  local n
  for n in $(seq "$2"); do
    if ! running "$1"; then return 0; fi
    sleep 0.1
  done
  return 1
}

# Sends SIGTERM first; a process that has not ended after 5 s is killed. The data of all parts survives that.
stop_part() {
  if running "$1"; then
    kill -CONT "$(pid_of "$1")" 2>/dev/null || true
    kill -TERM "$(pid_of "$1")" 2>/dev/null || true
    if ! wait_until_gone "$1" 50; then
      kill -KILL "$(pid_of "$1")" 2>/dev/null || true
      wait_until_gone "$1" 50 || fail "$1 (pid $(pid_of "$1")) does not end"
    fi
  fi
  rm -f "$dir/run/$1.pid"
}

# Processes of this stack whose pid file is lost.
stop_leftovers() {
  local pid args
  while read -r pid args; do
    case " $args " in *" $dir/temporal.db "* | *"=$cluster/"*) ;; *) continue ;; esac
    case ${args%% *} in
      */temporal-dev | */etcd | */kube-apiserver | */kube-controller-manager | */kube-scheduler | */kwok-controller)
        say "ending a process without pid file: ${args%% *} (pid $pid)"
        kill -KILL "$pid" 2>/dev/null || true
        ;;
    esac
  done < <(ps -axww -o pid=,args=)
}

# Records stacks in other folders that were started from this clone: a test that dies leaves one behind.
remember_stack() {
  mkdir -p "$root/.dev/stacks"
  echo "$dir" >"$root/.dev/stacks/${dir//\//%}"
}

forget_stack() { rm -f "$root/.dev/stacks/${dir//\//%}"; }

stop_other_stacks() {
  local file folder
  for file in "$root"/.dev/stacks/*; do
    if [ ! -f "$file" ]; then continue; fi
    folder=$(cat "$file")
    say "stopping the stack in $folder"
    "$here/stack.sh" down ${delete:+--delete} --dir "$folder"
  done
}

delete_data() {
  rm -rf "$dir/temporal.db" "$dir/temporal.db-wal" "$dir/temporal.db-shm" "$dir/temporal.db.partial" "$dir/etcd" \
    "$dir/kwok" "$dir/kubeconfig" "$dir/prepared" "$dir/env" "$dir/run" "$dir/logs"
}

# http_ok PORT PATH: succeeds if a GET over plain HTTP returns 200 within 2 s.
http_ok() {
  local answer
  answer=$( (exec 3<>"/dev/tcp/127.0.0.1/$1" && printf 'GET %s HTTP/1.0\r\n\r\n' "$2" >&3 && read -r -t 2 -u 3 line && echo "$line") 2>/dev/null) || return 1
  case $answer in *" 200 "*) return 0 ;; *) return 1 ;; esac
}

# wait_for NAME SECONDS CHECK…: waits until CHECK succeeds; shows the end of the log if it does not, or if the process
# has ended.
wait_for() {
  local name=$1 tenths=$(($2 * 10)) n
  shift 2
  for n in $(seq "$tenths"); do
    if "$@" >/dev/null 2>&1; then return 0; fi
    if [ "$n" -gt 5 ] && ! running "$name"; then break; fi
    sleep 0.1
  done
  echo "stack: $name does not serve; the end of $dir/logs/$name.log:" >&2
  tail -n 15 "$dir/logs/$name.log" >&2 || true
  exit 1
}
