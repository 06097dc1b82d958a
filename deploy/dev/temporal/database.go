package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
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

// readyTimeout is the time in which a started server must answer.
const readyTimeout = 60 * time.Second

// ensureSearchAttributes waits until the server answers, adds the attributes that an existing namespace lacks, and
// waits until the frontend accepts them. An attribute that exists with another type is an error, since the server
// cannot change it.
func ensureSearchAttributes(ctx context.Context, frontend string, wanted map[string]enumspb.IndexedValueType) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	c, err := client.NewLazyClient(client.Options{HostPort: frontend,
		Logger: sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	if err != nil {
		return fmt.Errorf("client of the Temporal server: %w", err)
	}
	defer c.Close()
	var known *operatorservice.ListSearchAttributesResponse
	err = retryUntilSuccess(ctx, func() (err error) {
		known, err = c.OperatorService().ListSearchAttributes(ctx,
			&operatorservice.ListSearchAttributesRequest{Namespace: namespaceName})
		return err
	})
	if err != nil {
		return fmt.Errorf("list the search attributes: %w", err)
	}
	missing, err := missingAttributes(known.GetCustomAttributes(), wanted)
	if err != nil || len(missing) == 0 {
		return err
	}
	request := &operatorservice.AddSearchAttributesRequest{Namespace: namespaceName, SearchAttributes: missing}
	if _, err := c.OperatorService().AddSearchAttributes(ctx, request); err != nil {
		return fmt.Errorf("add search attributes: %w", err)
	}
	query := strings.Join(slices.Collect(maps.Keys(missing)), " IS NULL OR ") + " IS NULL"
	err = retryUntilSuccess(ctx, func() error {
		_, err := c.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Namespace: namespaceName,
			Query: query})
		return err
	})
	if err != nil {
		return fmt.Errorf("wait for the added search attributes: %w", err)
	}
	return nil
}

// retryUntilSuccess repeats the request until it succeeds or ctx is done.
func retryUntilSuccess(ctx context.Context, request func() error) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := request()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-ticker.C:
		}
	}
}

func missingAttributes(known, wanted map[string]enumspb.IndexedValueType) (map[string]enumspb.IndexedValueType, error) {
	missing := map[string]enumspb.IndexedValueType{}
	var clashes []error
	for name, kind := range wanted {
		switch has, ok := known[name]; {
		case !ok:
			missing[name] = kind
		case has != kind:
			clashes = append(clashes, fmt.Errorf("search attribute %s is a %s already and cannot become a %s: choose "+
				"another name or a new database file", name, has, kind))
		}
	}
	return missing, errors.Join(clashes...)
}
