#!/bin/sh
# Creates Slipway's Temporal namespace, unless it exists, and ends when it can be used.
#
#   TEMPORAL_HTTP_ADDRESS    Temporal's HTTP API, http://host:port
#   TEMPORAL_NAMESPACE       name of the namespace
#   TEMPORAL_RETENTION_DAYS  how long Temporal keeps closed workflows
set -eu

namespaces=$TEMPORAL_HTTP_ADDRESS/api/v1/namespaces
patience=60

ask() { timeout 10 wget -q -O - "$@"; }

case $TEMPORAL_RETENTION_DAYS in
  '' | 0* | *[!0-9]*)
    echo "TEMPORAL_RETENTION_DAYS is '$TEMPORAL_RETENTION_DAYS': want a whole number of days, at least 1" >&2
    exit 1
    ;;
esac
retention=$((TEMPORAL_RETENTION_DAYS * 24 * 60 * 60))s

if ask "$namespaces/$TEMPORAL_NAMESPACE" >/dev/null 2>&1; then
  echo "namespace $TEMPORAL_NAMESPACE exists; its retention is unchanged"
else
  ask --header 'Content-Type: application/json' \
    --post-data "{\"namespace\":\"$TEMPORAL_NAMESPACE\",\"workflowExecutionRetentionPeriod\":\"$retention\"}" "$namespaces" >/dev/null
  echo "namespace $TEMPORAL_NAMESPACE is created; closed workflows are kept for $TEMPORAL_RETENTION_DAYS days"
fi

# It takes some seconds until every part of the server knows a new namespace.
attempt=0
until ask "$namespaces/$TEMPORAL_NAMESPACE/workflows?pageSize=1" >/dev/null 2>&1; do
  attempt=$((attempt + 1))
  if [ "$attempt" -ge "$patience" ]; then
    echo "namespace $TEMPORAL_NAMESPACE cannot be used $patience s after it was found or created" >&2
    exit 1
  fi
  sleep 1
done
echo "namespace $TEMPORAL_NAMESPACE can be used"
