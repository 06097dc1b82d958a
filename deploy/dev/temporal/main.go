// Command temporal-dev is the Temporal server of the local stack: all four services and the Web UI in one process, on
// one SQLite file. It listens on the loopback address only, because by default it has no access control. With TLS,
// client certificates or API keys its gRPC API is secured, but its Web UI is not.
//
//	temporal-dev --port 7233 --ui-port 8233 --db-filename temporal.db
//	temporal-dev … --tls-cert-file server.pem --tls-key-file server.key \
//	  --client-ca-file clients.pem --api-keys-file keys
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	enumspb "go.temporal.io/api/enums/v1"
)

// options define what to serve, on which ports and from which file.
type options struct {
	Port, UIPort     int
	DBFilename       string
	SearchAttributes map[string]enumspb.IndexedValueType
	LogLevel         string
	Security         security
	// NamespaceWorkers makes Temporal's own workers serve every namespace.
	NamespaceWorkers bool
	// NamespaceRPS is the server's limit of requests per second and namespace; 0: its default.
	NamespaceRPS int
}

const listenIP = "127.0.0.1"

func address(port int) string { return net.JoinHostPort(listenIP, strconv.Itoa(port)) }

// slipwayAttributes are the search attributes that Slipway writes.
var slipwayAttributes = map[string]enumspb.IndexedValueType{
	"SlipwayKind":         enumspb.INDEXED_VALUE_TYPE_KEYWORD,
	"SlipwayState":        enumspb.INDEXED_VALUE_TYPE_KEYWORD,
	"SlipwayName":         enumspb.INDEXED_VALUE_TYPE_KEYWORD,
	"SlipwayNamespace":    enumspb.INDEXED_VALUE_TYPE_KEYWORD,
	"SlipwayWaitingFor":   enumspb.INDEXED_VALUE_TYPE_KEYWORD,
	"SlipwayWaitingSince": enumspb.INDEXED_VALUE_TYPE_DATETIME,
	"SlipwayParties":      enumspb.INDEXED_VALUE_TYPE_KEYWORD_LIST,
	"SlipwayServices":     enumspb.INDEXED_VALUE_TYPE_KEYWORD_LIST,
}

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

// run serves until ctx is done and then stops gracefully.
func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parseFlags(args, out)
	if err != nil {
		return err
	}
	s, err := start(ctx, o)
	if ctx.Err() != nil && s == nil {
		return nil // stopped during the start
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Temporal serves on %s, its Web UI on http://%s\n", address(o.Port), address(o.UIPort))
	<-ctx.Done()
	return s.stop()
}

// parseFlags returns an error for an unknown flag or invalid value; usage is written to out.
func parseFlags(args []string, out io.Writer) (options, error) {
	o := options{SearchAttributes: slipwayAttributes, LogLevel: "warn"}
	set := flag.NewFlagSet("temporal-dev", flag.ContinueOnError)
	set.SetOutput(out)
	set.IntVar(&o.Port, "port", 7233, "port of the server's gRPC API")
	set.IntVar(&o.UIPort, "ui-port", 8233, "port of the Web UI")
	set.StringVar(&o.DBFilename, "db-filename", "", "SQLite file with all data, kept over restarts")
	noAttributes := false
	set.BoolVar(&noAttributes, "no-search-attributes", false,
		"do not add Slipway's search attributes, as on a Temporal server that was not prepared for it")
	set.BoolVar(&o.NamespaceWorkers, "namespace-workers", false,
		"let Temporal's own workers, which keep the builds of workers, serve every namespace, not only the default one")
	set.IntVar(&o.NamespaceRPS, "namespace-rps", 0,
		"limit of requests per second and namespace; 0: the server's default")
	o.Security.register(set)
	if err := set.Parse(args); err != nil {
		return o, err
	}
	if noAttributes {
		o.SearchAttributes = nil
	}
	switch {
	case set.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q: only flags are accepted, see --help", set.Arg(0))
	case o.DBFilename == "":
		return o, errors.New("--db-filename is missing: name the file for all data")
	case o.NamespaceRPS < 0:
		return o, fmt.Errorf("--namespace-rps is %d: want 0 or more", o.NamespaceRPS)
	}
	for _, port := range []int{o.Port, o.UIPort} {
		if port < 1 || port > 65535 {
			return o, fmt.Errorf("%d is not a port: want 1 to 65535", port)
		}
	}
	return o, o.Security.check()
}
