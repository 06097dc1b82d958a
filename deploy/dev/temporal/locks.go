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

// locks are what a client has to show. The zero value asks for nothing.
type locks struct {
	// CertFile and KeyFile are the server's certificate: connections are encrypted.
	CertFile, KeyFile string
	// ClientCAFile holds the CA that clients' certificates have to be of.
	ClientCAFile string
	// APIKeysFile holds a line for each API key: what it may do (reader, writer or admin), and the key. It is read at each request.
	APIKeysFile string
}

func (l *locks) register(set *flag.FlagSet) {
	set.StringVar(&l.CertFile, "tls-cert-file", "", "certificate of the gRPC API, for TLS")
	set.StringVar(&l.KeyFile, "tls-key-file", "", "key of that certificate")
	set.StringVar(&l.ClientCAFile, "client-ca-file", "", "CA that clients' certificates have to be of")
	set.StringVar(&l.APIKeysFile, "api-keys-file", "", "file with a line `role key` for each API key; role: reader, writer or admin")
}

func (l *locks) check() error {
	if (l.CertFile == "") != (l.KeyFile == "") {
		return errors.New("--tls-cert-file and --tls-key-file belong together: give both, or neither")
	}
	if l.ClientCAFile != "" && l.CertFile == "" {
		return errors.New("--client-ca-file needs --tls-cert-file: there are client certificates with TLS alone")
	}
	if l.APIKeysFile != "" {
		_, err := readKeys(l.APIKeysFile)
		return err
	}
	return nil
}

// locked says whether clients have to show something. The server's own services, its Web UI and this program then use a frontend of their own.
func (l *locks) locked() bool { return l.CertFile != "" || l.APIKeysFile != "" }

// services are the services that run.
func (o options) services() []primitives.ServiceName {
	all := []primitives.ServiceName{primitives.FrontendService, primitives.HistoryService, primitives.MatchingService, primitives.WorkerService}
	if o.Locks.locked() {
		all = append(all, primitives.InternalFrontendService)
	}
	return all
}

// insider is the port of a frontend that asks for nothing.
func (p servicePorts) insider() int {
	if port, ok := p[primitives.InternalFrontendService]; ok {
		return port
	}
	return p[primitives.FrontendService]
}

func (l *locks) tls() config.RootTLS {
	var root config.RootTLS
	root.Frontend.Server.CertFile, root.Frontend.Server.KeyFile = l.CertFile, l.KeyFile
	if l.ClientCAFile != "" {
		root.Frontend.Server.RequireClientAuth, root.Frontend.Server.ClientCAFiles = true, []string{l.ClientCAFile}
	}
	return root
}

func (l *locks) authorizer() authorization.Authorizer {
	if l.APIKeysFile == "" {
		return authorization.NewNoopAuthorizer()
	}
	return authorization.NewDefaultAuthorizer()
}

func (l *locks) claimMapper(*config.Config) authorization.ClaimMapper {
	if l.APIKeysFile == "" {
		return authorization.NewNoopClaimMapper()
	}
	return keyHolder{file: l.APIKeysFile}
}

// keyHolder tells what the holder of an API key may do.
type keyHolder struct{ file string }

// GetClaims gives a key that is unknown no claims: the authorizer refuses what needs some.
func (k keyHolder) GetClaims(shown *authorization.AuthInfo) (*authorization.Claims, error) {
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

// AuthInfoRequired is false: who shows nothing is told that he may not, rather than taken for an insider.
func (keyHolder) AuthInfoRequired() bool { return false }

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
			return nil, fmt.Errorf("--api-keys-file: %s:%d is not `role key` with a role of reader, writer or admin", file, n+1)
		}
		keys[key] = role
	}
	return keys, nil
}
