package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/primitives"
)

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
