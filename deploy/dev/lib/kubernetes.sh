# shellcheck shell=bash disable=SC2154 # variables of stack.sh
# The Kubernetes control plane of the stack, installed by kwokctl. Sourced by stack.sh.

cluster_name=slipway
kubernetes_parts="etcd kube-apiserver kube-controller-manager kube-scheduler kwok-controller"

kubectl() { "$bin/kubectl" --kubeconfig "$dir/kubeconfig" "$@"; }

# If no part of the cluster runs, it is installed again around its data, so that it has the current ports, stages and
# flags.
start_kubernetes() {
  local part dead=
  for part in $kubernetes_parts; do
    if ! running "$part"; then dead="$dead $part"; fi
  done
  if [ "$(wc -w <<<"$dead")" -eq "$(wc -w <<<"$kubernetes_parts")" ]; then
    say "starting Kubernetes …"
    install_cluster
  else
    for part in $dead; do
      say "starting $part …"
      start_component "$part"
    done
  fi
  for part in $kubernetes_parts; do wait_for_component "$part"; done
  if [ -n "$dead" ] || [ ! -f "$dir/prepared" ]; then prepare_cluster; fi
}

install_cluster() {
  local part
  rm -rf "$cluster"
  mkdir -p "$cluster" "$dir/etcd"
  chmod 700 "$dir/etcd"
  for part in $kubernetes_parts; do rm -f "$dir/run/$part.pid"; rotate_log "$dir/logs/$part.log"; done
  # Data, logs and pid files of kwokctl's cluster are in the same folders as Temporal's.
  ln -s "$dir/etcd" "$cluster/etcd"
  ln -s "$dir/logs" "$cluster/logs"
  ln -s "$dir/run" "$cluster/pids"
  if [ -d "$dir/kwok/pki" ]; then cp -R "$dir/kwok/pki" "$cluster/pki"; fi
  cluster_config >"$dir/kwok/cluster.yaml"
  if ! "$bin/kwokctl" --config "$dir/kwok/cluster.yaml" --name "$cluster_name" create cluster --kubeconfig= \
    </dev/null >"$dir/logs/kwokctl.log" 2>&1; then
    tail -n 15 "$dir/logs/kwokctl.log" >&2
    fail "kwokctl could not create the cluster: see $dir/logs"
  fi
  rm -rf "$dir/kwok/pki"
  cp -R "$cluster/pki" "$dir/kwok/pki"
  # Includes the certificates, so that the file can be copied and mounted.
  (umask 077 && "$bin/kubectl" --kubeconfig "$cluster/kubeconfig.yaml" config view --raw --flatten >"$dir/kubeconfig.partial")
  mv "$dir/kubeconfig.partial" "$dir/kubeconfig"
}

# The configuration of kwokctl, with the stages of deploy/dev/kwok, which replace all of its own.
cluster_config() {
  local file
  cluster_options
  for file in "$here"/kwok/stage-*.yaml; do
    echo "---"
    sed "s~@behaviour@~$(behaviour_expression)~" "$file"
  done
}

# No client-side or server-side rate limits, because tests have thousands of objects, and no leader election, because
# there is one process of each. The heartbeat factor lets a node be silent for 2,000 s, so that nodes stay ready while a
# test stops the API server for minutes. KWOK takes no leases, since after a restart it would wait for its own old ones
# to expire. etcd doesn't sync to disk: data survives a killed process; a power failure can lose it, which is acceptable
# for a test cluster.
cluster_options() {
  cat <<CONFIG
apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokctlConfiguration
options:
  runtime: binary
  bindAddress: 127.0.0.1
  kubeApiserverPort: $SLIPWAY_DEV_KUBE_PORT
  etcdPort: $SLIPWAY_DEV_ETCD_PORT
  etcdPeerPort: $SLIPWAY_DEV_ETCD_PEER_PORT
  kubeControllerManagerPort: $SLIPWAY_DEV_CONTROLLER_MANAGER_PORT
  kubeSchedulerPort: $SLIPWAY_DEV_SCHEDULER_PORT
  kwokControllerPort: $SLIPWAY_DEV_KWOK_PORT
  etcdBinary: "$bin/etcd"
  kubeApiserverBinary: "$bin/kube-apiserver"
  kubeControllerManagerBinary: "$bin/kube-controller-manager"
  kubeSchedulerBinary: "$bin/kube-scheduler"
  kwokControllerBinary: "$bin/kwok"
  kubectlBinary: "$bin/kubectl"
  disableQPSLimits: true
  heartbeatFactor: 50
componentsPatches:
- name: etcd
  extraArgs:
  - {key: unsafe-no-fsync, value: "true"}
- name: kube-controller-manager
  extraArgs:
  - {key: leader-elect, value: "false"}
  - {key: concurrent-deployment-syncs, value: "20"}
  - {key: concurrent-replicaset-syncs, value: "20"}
  - {key: concurrent-statefulset-syncs, value: "20"}
  - {key: concurrent-daemonset-syncs, value: "10"}
  - {key: concurrent-job-syncs, value: "10"}
- name: kube-scheduler
  extraArgs:
  - {key: leader-elect, value: "false"}
- name: kwok-controller
  extraArgs:
  - {key: node-lease-duration-seconds, value: "0", override: true}
---
apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options:
  cidr: 10.0.0.0/12
  podPlayStageParallelism: 16
  nodePlayStageParallelism: 4
CONFIG
}

behaviour_expression() { sed '/^#/d' "$here/kwok/behaviour.jq" | tr -s '\n ' '  ' | sed 's/[&\\~]/\\&/g'; }

# Applies the nodes, the policy that makes KWOK delete pods like a kubelet, and Slipway's custom resource definitions of
# this clone.
prepare_cluster() {
  local log=$dir/logs/prepare.log
  if ! { kubectl apply --server-side --force-conflicts -f "$here/kwok/nodes.yaml" -f "$here/kwok/pods-go-when-asked.yaml" &&
    kubectl wait --for=condition=Ready nodes --all --timeout=60s &&
    apply_definitions && touch "$dir/prepared"; } >"$log" 2>&1; then
    tail -n 15 "$log" >&2
    fail "the cluster could not be prepared: see $log"
  fi
}

apply_definitions() {
  if ! compgen -G "$root/deploy/crds/*.yaml" >/dev/null; then return 0; fi
  kubectl apply --server-side --force-conflicts -f "$root/deploy/crds" &&
    kubectl wait --for=condition=Established -f "$root/deploy/crds" --timeout=60s
}

# start_component NAME: starts it and waits until it serves. After a long outage of the API server, its clients retry
# only after up to a minute: they are restarted, so that the cluster works when this returns. KWOK starts first: if a
# pod is created or bound while KWOK begins to watch pods and has not processed its node yet, KWOK skips it, and the pod
# would never become ready.
start_component() {
  local part clients=
  spawn_component "$1"
  wait_for_component "$1"
  if [ "$1" != kube-apiserver ]; then return 0; fi
  for part in kwok-controller kube-scheduler kube-controller-manager; do
    if running "$part"; then clients="$clients $part"; fi
  done
  for part in $clients; do kill -KILL "$(pid_of "$part")"; done
  for part in $clients; do wait_until_gone "$part" 50 || fail "$part still runs after kill -9"; done
  for part in $clients; do spawn_component "$part" && wait_for_component "$part"; done
  # KWOK may have skipped an existing pod: a change of the pod makes it check again.
  kubectl annotate pods --all --all-namespaces --overwrite "dev.slipway.io/looked-at=$(date +%s)" >/dev/null || true
}

# spawn_component NAME: starts it with the binary and arguments that kwokctl has recorded.
spawn_component() {
  local line words=()
  while IFS= read -r line; do words+=("$line"); done < <(component_command "$1" <"$cluster/kwok.yaml")
  [ ${#words[@]} -gt 1 ] || fail "$cluster/kwok.yaml does not say how to start $1: run '$0 down' and '$0 up'"
  spawn "$1" "${words[@]}"
}

# Prints the binary and the arguments of component $1, one per line, from kwokctl's own record. A long argument with
# spaces continues on the next, more deeply indented line.
component_command() {
  awk -v wanted="$1" '
    /^components:/            { inside = 1; next }
    inside && /^[^ -]/        { inside = 0 }
    !inside                   { next }
    /^- /                     { finish(); count = 0; binary = ""; name = ""; list = "" }
    /^(- |  )[a-zA-Z]+:/      { key = substr($0, 3); sub(/:.*/, "", key); list = key; value = substr($0, 3); sub(/^[a-zA-Z]+: ?/, "", value)
                                if (key == "binary") binary = value
                                if (key == "name") name = value
                                next }
    list == "args" && /^  - / { args[++count] = substr($0, 5); next }
    list == "args" && /^    / { sub(/^ +/, " "); args[count] = args[count] $0; next }
    function finish(   i)     { if (name == wanted) { print binary; for (i = 1; i <= count; i++) print args[i] } name = "" }
    END                       { finish() }'
}

wait_for_component() {
  case $1 in
    etcd) wait_for etcd 30 http_ok "$SLIPWAY_DEV_ETCD_PORT" /health ;;
    kube-apiserver) wait_for kube-apiserver 60 kubectl get --raw /readyz ;;
    kube-controller-manager) wait_for "$1" 60 listens "$SLIPWAY_DEV_CONTROLLER_MANAGER_PORT" ;;
    kube-scheduler) wait_for "$1" 60 listens "$SLIPWAY_DEV_SCHEDULER_PORT" ;;
    kwok-controller) wait_for "$1" 60 http_ok "$SLIPWAY_DEV_KWOK_PORT" /healthz ;;
  esac
}
