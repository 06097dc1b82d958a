# shellcheck shell=bash disable=SC2154 # variables of stack.sh
# The Temporal server of the stack. Sourced by stack.sh.

spawn_temporal() {
  spawn temporal "$bin/temporal-dev" --port "$SLIPWAY_DEV_TEMPORAL_PORT" --ui-port "$SLIPWAY_DEV_UI_UPSTREAM_PORT" --db-filename "$dir/temporal.db"
}

# The Web UI is started last, when the server answers and has its search attributes.
wait_for_temporal() { wait_for temporal 60 http_ok "$SLIPWAY_DEV_UI_UPSTREAM_PORT" /healthz; }
