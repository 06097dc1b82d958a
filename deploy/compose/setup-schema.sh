#!/bin/sh
# Creates Temporal's two databases, or upgrades them to the schema of this version; databases that are up to date don't
# change. The connection is in the environment: SQL_HOST, SQL_PORT, SQL_USER, SQL_PASSWORD, SQL_PLUGIN. With
# CREATE_DATABASES=false the databases must exist, and SQL_USER needs no permission to create any.
set -eu

# The tool contains the schemas of its version.
set_up() {
  database=$1 schema=$2
  echo "database $database: schema $schema"
  if [ "${CREATE_DATABASES:-true}" = true ]; then
    temporal-sql-tool --database "$database" create-database
  fi
  temporal-sql-tool --database "$database" setup-schema --version 0.0
  temporal-sql-tool --database "$database" update-schema --schema-name "$schema"
}

set_up "$TEMPORAL_DATABASE" postgresql/v12/temporal
set_up "$TEMPORAL_VISIBILITY_DATABASE" postgresql/v12/visibility
