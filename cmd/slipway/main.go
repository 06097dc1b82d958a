// Command slipway is the release engine and its command line: `server`, `worker` and `dev` run it, the other verbs talk to its HTTP API.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the next one ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(newApp(os.Stdin, os.Stdout, os.Stderr).run(ctx, os.Args[1:]))
}
