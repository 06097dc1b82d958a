#!/bin/sh
# Runs a command of Temporal's images with the database's password, which is read from a file: the environment that
# `docker inspect` shows contains no password.
#
#   with-password.sh COMMAND…
set -eu

password=$(cat "${DATABASE_PASSWORD_FILE:?names the file with the password}")
case $password in
  '')
    echo "POSTGRES_PASSWORD is empty: set it in .env" >&2
    exit 1
    ;;
  *[!A-Za-z0-9._~-]*)
    # Temporal's server renders its configuration from a template that does not quote values.
    echo "POSTGRES_PASSWORD may have letters, digits and . _ ~ - only: 'openssl rand -hex 24' makes a good one" >&2
    exit 1
    ;;
esac
# The variables that temporal-sql-tool and the server read.
export SQL_PASSWORD="$password" POSTGRES_PWD="$password"
exec "$@"
