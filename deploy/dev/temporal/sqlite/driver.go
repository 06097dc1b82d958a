// Package sqlite replaces modernc.org/sqlite, which Temporal's data store imports by that name, with SQLite in C and a
// cache of prepared statements: the translation into Go took half of the server's CPU. It offers the parts that the
// data store uses: the driver `sqlite`, and errors with SQLite's codes.
package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"strings"

	sqlite3 "github.com/mattn/go-sqlite3"
)

// statementCacheSize is the number of recently used statements that a connection keeps prepared.
const statementCacheSize = "256"

func init() { sql.Register("sqlite", fileDriver{}) }

type fileDriver struct{}

// Open opens a SQLite URI, with a `_pragma=name=value` for each pragma of the connection.
func (fileDriver) Open(uri string) (driver.Conn, error) {
	name, query, _ := strings.Cut(uri, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("SQLite's address %s: %w", uri, err)
	}
	pragmas := values["_pragma"]
	values.Del("_pragma")
	values.Del("_time_format") // the requested format is the only one of this driver
	values.Set("_mutex", "no") // database/sql gives a connection to one caller at a time
	values.Set("_stmt_cache_size", statementCacheSize)
	opened, err := (&sqlite3.SQLiteDriver{}).Open(name + "?" + values.Encode())
	if err != nil {
		return nil, wrapError(err)
	}
	c := &conn{SQLiteConn: opened.(*sqlite3.SQLiteConn)}
	for _, pragma := range pragmas {
		if _, err := c.ExecContext(context.Background(), "PRAGMA "+pragma, nil); err != nil {
			return nil, errors.Join(fmt.Errorf("PRAGMA %s: %w", pragma, err), c.Close())
		}
	}
	return c, nil
}

// conn is a connection that returns errors of this package.
type conn struct{ *sqlite3.SQLiteConn }

// ExecContext does not interrupt a running statement: the statement takes less time than a goroutine that waits for the
// end of ctx would cost.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	result, err := c.SQLiteConn.ExecContext(context.WithoutCancel(ctx), query, args)
	return result, wrapError(err)
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	found, err := c.SQLiteConn.QueryContext(ctx, query, args)
	if err != nil {
		return nil, wrapError(err)
	}
	return &rows{SQLiteRows: found.(*sqlite3.SQLiteRows)}, nil
}

func (c *conn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	begun, err := c.SQLiteConn.BeginTx(ctx, options)
	if err != nil {
		return nil, wrapError(err)
	}
	return tx{begun}, nil
}

type tx struct{ driver.Tx }

func (t tx) Commit() error   { return wrapError(t.Tx.Commit()) }
func (t tx) Rollback() error { return wrapError(t.Tx.Rollback()) }

// rows wraps errors during reading, too: a statement that writes can return rows.
type rows struct{ *sqlite3.SQLiteRows }

func (r *rows) Next(into []driver.Value) error { return wrapError(r.SQLiteRows.Next(into)) }

// Error is an error of SQLite.
type Error struct {
	code int
	text string
}

func (e *Error) Error() string { return e.text }

// Code returns the extended result code (https://www.sqlite.org/rescode.html).
func (e *Error) Code() int { return e.code }

// wrapError turns an error of SQLite into one of this package, and returns others unchanged.
func wrapError(err error) error {
	var of sqlite3.Error
	if !errors.As(err, &of) {
		return err
	}
	return &Error{code: int(of.ExtendedCode), text: fmt.Sprintf("%s: %s (%d)", of.Code, of.Error(), of.ExtendedCode)}
}
