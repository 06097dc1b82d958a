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
	"strings"
	"syscall"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/primitives"
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

// security defines the credentials that clients need. The zero value requires none.
type security struct {
	// CertFile and KeyFile are the server's certificate; if set, connections use TLS.
	CertFile, KeyFile string
	// ClientCAFile holds the CA that must have issued clients' certificates.
	ClientCAFile string
	// APIKeysFile has a line for each API key: its role (reader, writer or admin) and the key. It is read for each
	// request.
	APIKeysFile string
}

func (s *security) register(set *flag.FlagSet) {
	set.StringVar(&s.CertFile, "tls-cert-file", "", "certificate of the gRPC API, for TLS")
	set.StringVar(&s.KeyFile, "tls-key-file", "", "key of that certificate")
	set.StringVar(&s.ClientCAFile, "client-ca-file", "", "CA of clients' certificates")
	set.StringVar(&s.APIKeysFile, "api-keys-file", "",
		"file with a line `role key` for each API key; role: reader, writer or admin")
}

func (s *security) check() error {
	if (s.CertFile == "") != (s.KeyFile == "") {
		return errors.New("--tls-cert-file and --tls-key-file must be set together: set both or neither")
	}
	if s.ClientCAFile != "" && s.CertFile == "" {
		return errors.New("--client-ca-file needs --tls-cert-file: client certificates require TLS")
	}
	if s.APIKeysFile != "" {
		_, err := readKeys(s.APIKeysFile)
		return err
	}
	return nil
}

// secured reports whether clients need credentials or TLS. The server's own services, its Web UI and this program then
// use a separate internal frontend.
func (s *security) secured() bool { return s.CertFile != "" || s.APIKeysFile != "" }

// services returns the services to run.
func (o options) services() []primitives.ServiceName {
	all := []primitives.ServiceName{primitives.FrontendService, primitives.HistoryService, primitives.MatchingService,
		primitives.WorkerService}
	if o.Security.secured() {
		all = append(all, primitives.InternalFrontendService)
	}
	return all
}

// internalPort returns the port of a frontend that requires no credentials.
func (p servicePorts) internalPort() int {
	if port, ok := p[primitives.InternalFrontendService]; ok {
		return port
	}
	return p[primitives.FrontendService]
}

func (s *security) tls() config.RootTLS {
	var root config.RootTLS
	root.Frontend.Server.CertFile, root.Frontend.Server.KeyFile = s.CertFile, s.KeyFile
	if s.ClientCAFile != "" {
		root.Frontend.Server.RequireClientAuth, root.Frontend.Server.ClientCAFiles = true, []string{s.ClientCAFile}
	}
	return root
}

func (s *security) authorizer() authorization.Authorizer {
	if s.APIKeysFile == "" {
		return authorization.NewNoopAuthorizer()
	}
	return authorization.NewDefaultAuthorizer()
}

func (s *security) claimMapper(*config.Config) authorization.ClaimMapper {
	if s.APIKeysFile == "" {
		return authorization.NewNoopClaimMapper()
	}
	return keyClaims{file: s.APIKeysFile}
}

// keyClaims maps API keys to claims.
type keyClaims struct{ file string }

// GetClaims returns no claims for an unknown key: the authorizer refuses requests that need some.
func (k keyClaims) GetClaims(shown *authorization.AuthInfo) (*authorization.Claims, error) {
	roles, err := readKeys(k.file)
	if err != nil {
		return nil, err
	}
	scheme, key, _ := strings.Cut(shown.AuthToken, " ")
	role, known := roles[key]
	if !known || !strings.EqualFold(scheme, "Bearer") {
		return &authorization.Claims{}, nil
	}
	return &authorization.Claims{Subject: "api-key", AuthType: "api-key", System: role}, nil
}

// AuthInfoRequired is false, so that a request without credentials is refused and not treated as internal.
func (keyClaims) AuthInfoRequired() bool { return false }

var roles = map[string]authorization.Role{
	"reader": authorization.RoleReader,
	"writer": authorization.RoleReader | authorization.RoleWriter | authorization.RoleWorker,
	"admin":  authorization.RoleReader | authorization.RoleWriter | authorization.RoleWorker | authorization.RoleAdmin,
}

func readKeys(file string) (map[string]authorization.Role, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--api-keys-file: %w", err)
	}
	keys := map[string]authorization.Role{}
	for n, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		name, key, _ := strings.Cut(strings.TrimSpace(line), " ")
		role, known := roles[name]
		if !known || key == "" {
			return nil, fmt.Errorf("--api-keys-file: %s:%d is not `role key` with a role of reader, writer or admin",
				file, n+1)
		}
		keys[key] = role
	}
	return keys, nil
}
