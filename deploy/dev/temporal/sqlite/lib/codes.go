// Package sqlite3 has the SQLite result codes that Temporal's data store uses (https://www.sqlite.org/rescode.html).
package sqlite3

// The result codes of violated constraints; the latter two name the kind.
const (
	SQLITE_CONSTRAINT            = 19
	SQLITE_CONSTRAINT_PRIMARYKEY = SQLITE_CONSTRAINT | 6<<8
	SQLITE_CONSTRAINT_UNIQUE     = SQLITE_CONSTRAINT | 8<<8
)
