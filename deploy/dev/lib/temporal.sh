# shellcheck shell=bash disable=SC2154 # variables of stack.sh
# The Temporal server of the stack. Sourced by stack.sh.

# The search attributes that Slipway writes, as Name=Type.
search_attributes="SlipwayKind=Keyword SlipwayState=Keyword SlipwayName=Keyword SlipwayNamespace=Keyword \
SlipwayWaitingFor=Keyword SlipwayWaitingSince=Datetime SlipwayParties=KeywordList SlipwayServices=KeywordList"

spawn_temporal() {
  local attribute flags=()
  for attribute in $search_attributes; do flags+=(--search-attribute "$attribute"); done
  # Timers fire to 10 ms instead of 1 s, which is what makes short tests short. One partition per task queue is plenty for
  # one machine, and a task then always meets its poller at once.
  spawn temporal "$bin/temporal-dev" server start-dev \
    --ip 127.0.0.1 --port "$SLIPWAY_DEV_TEMPORAL_PORT" --ui-port "$SLIPWAY_DEV_UI_PORT" \
    --db-filename "$dir/temporal.db" --namespace default --retention 72h --log-level warn \
    --dynamic-config-value 'history.timerProcessorMaxTimeShift="10ms"' \
    --dynamic-config-value 'matching.numTaskqueueReadPartitions=1' \
    --dynamic-config-value 'matching.numTaskqueueWritePartitions=1' \
    --dynamic-config-value 'frontend.enableServerVersionCheck=false' \
    "${flags[@]}"
}

# The Web UI is started last, when the server answers and has its search attributes.
wait_for_temporal() { wait_for temporal 60 http_ok "$SLIPWAY_DEV_UI_PORT" /healthz; }
