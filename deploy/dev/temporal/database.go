package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.temporal.io/server/common/config"
	sqliteplugin "go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/schema/sqlite"
	"google.golang.org/protobuf/types/known/durationpb"
)

// openDatabase creates the file with its schema, and the namespace in it, unless they exist.
func openDatabase(o options) (*config.SQL, error) {
	if err := createFile(o.DBFilename); err != nil {
		return nil, err
	}
	// The write-ahead log makes the server about seven times as fast as SQLite's default. It survives a kill of the
	// process at any instant; only a power failure can cost the last moments.
	db := database(o.DBFilename, map[string]string{"mode": "rwc", "journal_mode": "WAL", "synchronous": "NORMAL"})
	namespace, err := sqlite.NewNamespaceConfig(clusterName, namespaceName, false, o.SearchAttributes)
	if err != nil {
		return nil, fmt.Errorf("namespace %s: %w", namespaceName, err)
	}
	namespace.Detail.Config.Retention = durationpb.New(retention)
	if err := sqlite.CreateNamespaces(db, namespace); err != nil {
		return nil, fmt.Errorf("namespace %s in %s: %w", namespaceName, o.DBFilename, err)
	}
	return db, nil
}

func database(name string, attributes map[string]string) *config.SQL {
	return &config.SQL{PluginName: sqliteplugin.PluginName, DatabaseName: name, ConnectAttributes: attributes}
}

// createFile sets up the schema under a temporary name first, so that a killed start leaves no partial schema.
func createFile(name string) error {
	if _, err := os.Stat(name); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fmt.Errorf("folder of the database file: %w", err)
	}
	partial := name + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return fmt.Errorf("remove the file of an interrupted start: %w", err)
	}
	if err := sqlite.SetupSchema(database(partial,
		map[string]string{"mode": "rwc", "synchronous": "OFF"})); err != nil {
		return fmt.Errorf("set up the database file %s: %w", name, err)
	}
	return os.Rename(partial, name)
}
