#!/usr/bin/env bash
# `make demo`: releases the shop of examples/shop on the local stack by a plan, then two services of examples/rollouts
# as a canary and as a blue-green, and finally a plan with a code package whose middle wave is a canary. It shows the
# progress. The stack and the engine stay up.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
stack=$root/deploy/dev/stack.sh
# shellcheck source=/dev/null
. "$root/.dev/env"
export KUBECONFIG=$SLIPWAY_DEV_KUBECONFIG SLIPWAY_API=http://$SLIPWAY_DEV_API_ADDRESS PATH=$SLIPWAY_DEV_BIN:$PATH
shop=$root/examples/shop
rollouts=$root/examples/rollouts
kiosk=$root/examples/kiosk
packages=$root/.dev/packages
SLIPWAY_PACKAGE_STORE=http://127.0.0.1:$((SLIPWAY_DEV_API_PORT + 5))

say() { printf '\n== %s\n' "$*"; }

# Restarts the engine, so that the demo shows the current build.
start_engine() {
  "$stack" stop slipway >/dev/null 2>&1 || true
  "$stack" spawn slipway -- "$SLIPWAY_DEV_BIN/slipway" dev --listen "$SLIPWAY_DEV_API_ADDRESS" \
    --kuscia-listen "127.0.0.1:$((SLIPWAY_DEV_API_PORT + 2))" --kuscia-grpc-listen "127.0.0.1:$((SLIPWAY_DEV_API_PORT + 3))" --webhook-listen "127.0.0.1:$((SLIPWAY_DEV_API_PORT + 4))" --kubeconfig "$SLIPWAY_DEV_KUBECONFIG" \
    --temporal-address "$SLIPWAY_DEV_TEMPORAL_ADDRESS" --temporal-ui "$SLIPWAY_DEV_TEMPORAL_UI" \
    --temporal-ui-upstream "$SLIPWAY_DEV_TEMPORAL_UI_UPSTREAM" --temporal-ui-listen "127.0.0.1:$SLIPWAY_DEV_UI_PORT" \
    --package-dir "$packages" --package-listen "127.0.0.1:$((SLIPWAY_DEV_API_PORT + 5))" --image registry.example/slipway:demo
  local deadline=$((SECONDS + 60))
  until slipway healthcheck "$SLIPWAY_API/readyz" >/dev/null 2>&1; do
    if [ $SECONDS -ge $deadline ]; then
      echo "demo: the engine does not become ready:" >&2
      slipway healthcheck "$SLIPWAY_API/readyz" >&2 || tail -20 "$root/.dev/logs/slipway.log" >&2
      exit 1
    fi
    sleep 0.2
  done
}

# Restores the state before the release: the old search runs, the new one does not.
reset_shop() {
  kubectl apply -f "$shop/workloads.yaml" >/dev/null
  kubectl -n shop annotate deployment/search deployment/search-old slipway.io/replicas- >/dev/null
  kubectl -n shop scale deployment/search --replicas=0 >/dev/null
  kubectl -n shop scale deployment/search-old --replicas=2 >/dev/null
  kubectl -n shop rollout status deployment/order deployment/web deployment/search-old --timeout=120s >/dev/null
  kubectl -n shop rollout status statefulset/database --timeout=120s >/dev/null
  kubectl -n shop rollout status statefulset/basket --timeout=120s >/dev/null
}

# Restores the state before the releases: the first version of both, and no unfinished rollout of an earlier demo.
reset_boutique() {
  local name
  for name in front cart; do
    slipway rollout rollback "$name" -n boutique --reason "a new demo" >/dev/null 2>&1 &&
      slipway rollout wait "$name" -n boutique --for finished --timeout 2m >/dev/null 2>&1 || true
  done
  kubectl -n boutique delete rollouts.rollouts.kruise.io search --ignore-not-found --timeout=60s >/dev/null 2>&1 || true
  kubectl apply -f "$rollouts/workloads.yaml" >/dev/null
  kubectl -n boutique rollout status deployment/front deployment/cart deployment/search --timeout=120s >/dev/null
}

# Restores the state before the release: no unfinished task of an earlier demo, and no package.
reset_kiosk() {
  local task
  for task in $(slipway task list --plan kiosk --state Running --state Stopping -o json | sed -n 's/^ *"id": "\(.*\)",$/\1/p'); do
    slipway task stop "$task" --to stable --reason "a new demo" >/dev/null 2>&1 || true
    slipway task watch "$task" --timeout 2m >/dev/null 2>&1 || true
  done
  kubectl delete namespace kiosk --ignore-not-found --timeout=120s >/dev/null
  kubectl apply -f "$kiosk/workloads.yaml" >/dev/null
  kubectl -n kiosk rollout status deployment/cache deployment/front deployment/mail --timeout=120s >/dev/null
}

# Follows a task until its canary waits for an approval.
until_canary_waits() {
  local deadline=$((SECONDS + 120))
  until slipway rollout list -n kiosk --waiting-for approval -o json | grep -q '"name": "front"'; do
    [ $SECONDS -lt $deadline ] || { echo "demo: the canary of the plan does not wait for an approval" >&2; exit 1; }
    sleep 0.5
  done
}

# until_rollout waits for a field of a Rollout.
until_rollout() {
  run kubectl -n boutique wait rollouts.rollouts.kruise.io/"$1" "--for=jsonpath=$2" --timeout=120s
}

# run shows a command as a person would type it, and runs it.
run() {
  local word line='$'
  for word in "${@//"$root"\//}"; do
    case $word in *\ *) line+=" \"$word\"" ;; *) line+=" $word" ;; esac
  done
  printf '\n%s\n' "$line"
  "$@"
}

# Follows a rollout until it waits for a person, which ends the command with exit code 5.
until_it_waits() {
  local code=0
  run "$@" || code=$?
  [ $code -eq 5 ] || { echo "demo: expected the rollout to wait for an approval (exit code 5), got exit code $code" >&2; exit 1; }
}

say "starting the engine"
start_engine
say "the shop before the release"
reset_shop
kubectl -n shop get deployments,statefulsets
say "adding its services to the catalogue, checking and storing its plan"
slipway service apply -f "$shop/services.yaml"
slipway validate "$shop/plan.yaml"
slipway plan apply shop -f "$shop/plan.yaml"
say "the release"
slipway plan run shop --reason "demo" --watch --timeout 10m
say "its report"
task=$(slipway task list --plan shop -o json | sed -n 's/^ *"id": "\(.*\)",$/\1/p' | head -1)
slipway task report "$task"
say "the shop after the release"
kubectl -n shop get deployments,statefulsets

say "a canary: a fifth of the pods and of the traffic, then a person approves"
reset_boutique
until_it_waits slipway rollout start -f "$rollouts/canary.yaml" --reason "demo" --watch --exit-on-paused --timeout 5m
run kubectl -n boutique get deployments,services,ingresses
run slipway rollout approve boutique/front --yes --reason "the error rate is fine"
run slipway rollout watch front -n boutique --timeout 5m

say "a blue-green: all new pods are ready before the first request, all old pods stay until the last approval"
until_it_waits slipway rollout start -f "$rollouts/blue-green.yaml" --reason "demo" --watch --exit-on-paused --timeout 5m
run slipway rollout approve boutique/cart --yes --reason "no complaints"
run slipway rollout watch cart -n boutique --timeout 5m

say "a canary by kubectl: the API server holds the change, each approval is recorded with a name"
run kubectl apply -f "$rollouts/search.yaml"
until_rollout search '{.status.phase}=Healthy'
run kubectl -n boutique set image deployment/search app=registry.example/search:2
until_rollout search '{.status.currentStepState}=StepPaused'
run kubectl -n boutique get rollouts.rollouts.kruise.io,deployments search
run kubectl -n boutique patch rollouts.rollouts.kruise.io search --subresource=status --type=merge \
  -p '{"status":{"canaryStatus":{"currentStepState":"StepReady"}}}'
until_rollout search '{.status.conditions[?(@.type=="Succeeded")].status}=True'
run slipway rollout get boutique/search

say "a plan with a code package, whose middle wave is a canary that a person approves"
reset_kiosk
tar -C "$kiosk/content" -czf "$root/.dev/pages.tar.gz" .
export SLIPWAY_PACKAGE_STORE
run slipway package push "$root/.dev/pages.tar.gz" --token-file "$packages/token"
slipway service apply -f "$kiosk/services.yaml"
digest=$(sha256sum "$root/.dev/pages.tar.gz" | cut -d' ' -f1)
sed "s|https://packages.example.com/kiosk/pages.tar.gz|$SLIPWAY_PACKAGE_STORE/packages/sha256/$digest|" "$kiosk/plan.yaml" >"$root/.dev/kiosk-plan.yaml"
run slipway plan apply kiosk -f "$root/.dev/kiosk-plan.yaml"
run slipway plan run kiosk --reason "demo"
until_canary_waits
task=$(slipway task list --plan kiosk -o json | sed -n 's/^ *"id": "\(.*\)",$/\1/p' | head -1)
run slipway task get "$task"
run slipway rollout approve kiosk/front --yes --reason "the new page is up"
run slipway task watch "$task" --timeout 5m

say "the result: the new versions run, and nothing of the rollouts is left"
run kubectl -n boutique get deployments,services,ingresses
run slipway rollout list
run slipway rollout history front -n boutique

cat <<END

The stack and the engine stay up (make down stops them):
  HTTP API     $SLIPWAY_API        documentation: $SLIPWAY_API/docs
  Temporal UI  $SLIPWAY_DEV_TEMPORAL_UI
  kubectl      export KUBECONFIG=$KUBECONFIG
  slipway      export PATH=$SLIPWAY_DEV_BIN:\$PATH${SLIPWAY_API:+ SLIPWAY_API=$SLIPWAY_API}
END
