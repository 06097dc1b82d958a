package main

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"
)

// TestDriver checks the features on which Temporal's data store relies in the replaced driver.
func TestDriver(t *testing.T) {
	ctx := t.Context()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "a b.db")+
		"?_pragma=journal_mode%3DWAL&_pragma=synchronous%3DNORMAL&_time_format=sqlite&mode=rwc")
	require.NoError(t, err)
	db.SetMaxOpenConns(1)
	defer func() { require.NoError(t, db.Close()) }()
	exec := func(query string, args ...any) error {
		_, err := db.ExecContext(ctx, query, args...)
		return err
	}
	one := func(query string, args ...any) (s string) {
		require.NoError(t, db.QueryRowContext(ctx, query, args...).Scan(&s))
		return s
	}
	require.Equal(t, "wal", one("PRAGMA journal_mode"), "the connection's pragmas must be set")
	require.Equal(t, "1", one("PRAGMA synchronous"))

	require.NoError(t,
		exec("CREATE TABLE t (id TEXT PRIMARY KEY, at TIMESTAMP, data BLOB); CREATE UNIQUE INDEX i ON t (at)"),
		"several statements at once, as in the schema")
	at := time.Date(2026, 11, 27, 20, 0, 0, 123456000, time.UTC)
	require.NoError(t, exec("INSERT INTO t VALUES (?, ?, ?)", "one", at, []byte{1, 0, 2}))
	var data []byte
	var back time.Time
	require.NoError(t, db.QueryRowContext(ctx, "SELECT at, data FROM t WHERE at = ?", at).Scan(&back, &data))
	require.Equal(t, []byte{1, 0, 2}, data)
	require.True(t, at.Equal(back), "a time must keep its microseconds and be found by the written value")

	var taken *sqlite.Error
	require.ErrorAs(t, exec("INSERT INTO t VALUES (?, ?, ?)", "one", at.Add(1), nil), &taken,
		"a duplicate primary key means that the workflow is already started")
	require.Equal(t, 1555, taken.Code())
	require.ErrorAs(t, exec("INSERT INTO t VALUES (?, ?, ?)", "two", at, nil), &taken,
		"the same for another unique index")
	require.Equal(t, 2067, taken.Code())
	require.ErrorAs(t, db.QueryRowContext(ctx, "INSERT INTO t VALUES (?, ?, ?) RETURNING id", "one", at.Add(1),
		nil).Scan(new(string)), &taken,
		"the same for a statement that returns rows")
	require.Equal(t, 1555, taken.Code())
	require.EqualError(t, exec("CREATE TABLE t (id TEXT)"), "SQL logic error: table t already exists (1)",
		"the data store looks for this text")

	require.NoError(t, exec("CREATE VIRTUAL TABLE lists USING fts5 (parties)"), "keyword lists use full-text search")
	require.NoError(t, exec("INSERT INTO lists VALUES (?)", "alice bob"))
	require.Equal(t, "alice bob", one("SELECT parties FROM lists WHERE parties MATCH ?", "bob"))

	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = db.ExecContext(cancelled, "DELETE FROM t")
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, "1", one("SELECT count(*) FROM t"), "a statement with a cancelled context must not run")
}
