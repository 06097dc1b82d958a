// Package sqlite stands in for modernc.org/sqlite, which Temporal's data store imports by that name: SQLite in C instead of its translation into Go, which
// took half of the server's CPU, and with statements that are parsed once. It offers what that data store uses of the other: the driver
// `sqlite`, and errors with SQLite's codes.
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

// statementsKept is how many statements of a connection are kept in their parsed form, the last used ones.
const statementsKept = "256"

func init() { sql.Register("sqlite", fileDriver{}) }

type fileDriver struct{}

// Open takes a URI of SQLite's with a `_pragma=name=value` for each pragma of the connection.
func (fileDriver) Open(uri string) (driver.Conn, error) {
	name, query, _ := strings.Cut(uri, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("SQLite's address %s: %w", uri, err)
	}
	pragmas := values["_pragma"]
	values.Del("_pragma")
	values.Del("_time_format") // the one that is asked for is the only one
	values.Set("_mutex", "no") // database/sql gives a connection to one caller at a time
	values.Set("_stmt_cache_size", statementsKept)
	opened, err := (&sqlite3.SQLiteDriver{}).Open(name + "?" + values.Encode())
	if err != nil {
		return nil, coded(err)
	}
	c := &conn{SQLiteConn: opened.(*sqlite3.SQLiteConn)}
	for _, pragma := range pragmas {
		if _, err := c.ExecContext(context.Background(), "PRAGMA "+pragma, nil); err != nil {
			return nil, errors.Join(fmt.Errorf("PRAGMA %s: %w", pragma, err), c.Close())
		}
	}
	return c, nil
}

// conn is a connection whose errors are those of this package.
type conn struct{ *sqlite3.SQLiteConn }

// ExecContext doesn't stop a statement that has begun: it takes less than a goroutine that waits for the end of ctx.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	result, err := c.SQLiteConn.ExecContext(context.WithoutCancel(ctx), query, args)
	return result, coded(err)
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	found, err := c.SQLiteConn.QueryContext(ctx, query, args)
	if err != nil {
		return nil, coded(err)
	}
	return &rows{SQLiteRows: found.(*sqlite3.SQLiteRows)}, nil
}

func (c *conn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	begun, err := c.SQLiteConn.BeginTx(ctx, options)
	if err != nil {
		return nil, coded(err)
	}
	return tx{begun}, nil
}

type tx struct{ driver.Tx }

func (t tx) Commit() error   { return coded(t.Tx.Commit()) }
func (t tx) Rollback() error { return coded(t.Tx.Rollback()) }

// rows tell of an error while they are read as one of this package, too: a statement that writes can return rows.
type rows struct{ *sqlite3.SQLiteRows }

func (r *rows) Next(into []driver.Value) error { return coded(r.SQLiteRows.Next(into)) }

// Error is an error of SQLite's.
type Error struct {
	code int
	text string
}

func (e *Error) Error() string { return e.text }

// Code is the extended result code (https://www.sqlite.org/rescode.html).
func (e *Error) Code() int { return e.code }

// coded makes an error of SQLite's one of this package, and leaves others as they are.
func coded(err error) error {
	var of sqlite3.Error
	if !errors.As(err, &of) {
		return err
	}
	return &Error{code: int(of.ExtendedCode), text: fmt.Sprintf("%s: %s (%d)", of.Code, of.Error(), of.ExtendedCode)}
}
