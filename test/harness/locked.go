package harness

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/sdk/client"

	"slipway.io/slipway/workflows"
)

// SecureTemporal is the Temporal server of one test. It uses TLS and requires a client certificate and an API key.
type SecureTemporal struct {
	Stack
	// Dir holds the engine's credentials: client.pem, client.key, api-key, and the folder codec-keys. CAFile is the CA
	// of the server.
	Dir, CAFile string

	t         testing.TB
	clients   *Authority
	serverDir string
	server    *temporalServer
}

// The API keys that the server accepts: the engine's and the tests'.
const (
	engineKey = "engine-key"
	adminKey  = "admin-key"
)

// NewSecureTemporal starts the server. Workloads run on the shared stack.
func NewSecureTemporal(t testing.TB) *SecureTemporal {
	t.Helper()
	l := &SecureTemporal{Stack: SharedStack(t), Dir: t.TempDir(), t: t, clients: NewAuthority(t)}
	l.server = newTemporalServer(t, &l.Stack)
	l.serverDir = l.server.dir
	server := NewAuthority(t)
	l.CAFile = server.File
	cert, key := server.Issue()
	l.copyToServer("server.pem", cert)
	l.copyToServer("server.key", key)
	l.RenewClientCertificate()
	l.AcceptKey(engineKey)
	l.Write("api-key", engineKey)
	l.UseCodecKey("first")
	l.TemporalClientOptions = func(o *client.Options) {
		o.ConnectionOptions.TLS = server.Client(l.clients)
		o.Credentials = client.NewAPIKeyStaticCredentials(adminKey)
	}
	l.Restart()
	l.Prepare = l.AddSearchAttributes
	return l
}

// Kill kills the server, like a crash.
func (l *SecureTemporal) Kill() { l.server.process.Kill() }

// Restart starts the server with its data, the current client CA and further flags.
func (l *SecureTemporal) Restart(flags ...string) {
	l.t.Helper()
	path := func(name string) string { return filepath.Join(l.serverDir, name) }
	l.copyToServer("clients.pem", l.clients.File)
	l.server.restart(append(flags, "--tls-cert-file", path("server.pem"), "--tls-key-file", path("server.key"),
		"--client-ca-file", path("clients.pem"),
		"--api-keys-file", path("api-keys"))...)
}

// Flags returns the flags with which an engine connects to the server.
func (l *SecureTemporal) Flags() []string {
	path := func(name string) string { return filepath.Join(l.Dir, name) }
	return []string{"--temporal-ca-file", l.CAFile, "--temporal-cert-file", path("client.pem"), "--temporal-key-file",
		path("client.key"),
		"--temporal-api-key-file", path("api-key"), "--temporal-codec-key-dir", path("codec-keys")}
}

// NewClientCA creates a new CA for client certificates. From its next start the server accepts only certificates of
// this CA.
func (l *SecureTemporal) NewClientCA() { l.clients = NewAuthority(l.t) }

// RenewClientCertificate gives the engine a new certificate.
func (l *SecureTemporal) RenewClientCertificate() {
	cert, key := l.clients.Issue()
	l.copyTo(l.Dir, "client.key", key)
	l.copyTo(l.Dir, "client.pem", cert)
}

// AcceptKey makes the server accept only this API key for engines, from now on.
func (l *SecureTemporal) AcceptKey(key string) {
	require.NoError(l.t, os.WriteFile(filepath.Join(l.serverDir, "api-keys"),
		fmt.Appendf(nil, "writer %s\nadmin %s\n", key, adminKey), 0o600))
}

// UseCodecKey creates a payload key and makes it the engine's current one. Earlier keys stay.
func (l *SecureTemporal) UseCodecKey(id string) {
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	l.Write(filepath.Join("codec-keys", id), base64.StdEncoding.EncodeToString(key)+"\n")
	l.Write(filepath.Join("codec-keys", "current"), id+"\n")
}

// Write writes a file into Dir atomically.
func (l *SecureTemporal) Write(name, content string) {
	path := filepath.Join(l.Dir, name)
	require.NoError(l.t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(l.t, os.WriteFile(filepath.Join(l.serverDir, "partial"), []byte(content), 0o600))
	require.NoError(l.t, os.Rename(filepath.Join(l.serverDir, "partial"), path))
}

func (l *SecureTemporal) copyToServer(name, from string) { l.copyTo(l.serverDir, name, from) }

func (l *SecureTemporal) copyTo(dir, name, from string) {
	text, err := os.ReadFile(from)
	require.NoError(l.t, err)
	require.NoError(l.t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
}

// AddSearchAttributes adds Slipway's search attributes to a namespace, as an operator does when the engine lacks the
// permission.
func (l *SecureTemporal) AddSearchAttributes(t testing.TB, namespace string) {
	t.Helper()
	missing := map[string]enumspb.IndexedValueType{}
	for _, key := range workflows.SearchAttributes {
		missing[key.GetName()] = key.GetValueType()
	}
	_, err := l.Temporal(t, namespace).OperatorService().AddSearchAttributes(context.Background(),
		&operatorservice.AddSearchAttributesRequest{Namespace: namespace, SearchAttributes: missing})
	require.NoError(t, err)
}
