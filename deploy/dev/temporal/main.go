// Command temporal-dev is the Temporal server of the local stack: all four services and the Web UI in one process, on
// one SQLite file. It has no access control: use it on a loopback address only.
//
//	temporal-dev server start-dev --port 7233 --ui-port 8233 --db-filename temporal.db
//
// The words `server start-dev` may be left out. Its flags are those of the Temporal CLI as far as they go, so that
// testsuite.StartDevServer can start it by DevServerOptions.ExistingPath.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "temporal-dev:", err)
		stop()
		os.Exit(1)
	}
}

// run serves until ctx is done and then stops in an orderly way.
func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parseFlags(args, out)
	if err != nil {
		return err
	}
	s, err := start(ctx, o)
	if ctx.Err() != nil && s == nil {
		return nil // asked to stop before it was up
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Temporal serves on %s", o.frontendAddress())
	if !o.Headless {
		fmt.Fprintf(out, ", its Web UI on http://%s", o.uiAddress())
	}
	fmt.Fprintln(out)
	<-ctx.Done()
	return s.stop()
}
