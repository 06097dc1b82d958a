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

// LockedTemporal is a Temporal server of one test that encrypts, asks for a client certificate, and lets in who shows an API key.
type LockedTemporal struct {
	Stack
	// Dir holds what the engine shows: client.pem, client.key, api-key, and the folder codec-keys. CAFile is the CA of the server.
	Dir, CAFile string

	t       testing.TB
	clients *Authority
	own     string
	server  *temporalServer
}

// The keys that the server knows: the engine's and the tests'.
const (
	engineKey = "engine-key"
	adminKey  = "admin-key"
)

// NewLockedTemporal starts one. Workloads are those of the shared stack.
func NewLockedTemporal(t testing.TB) *LockedTemporal {
	t.Helper()
	l := &LockedTemporal{Stack: SharedStack(t), Dir: t.TempDir(), t: t, clients: NewAuthority(t)}
	l.server = newTemporalServer(t, &l.Stack)
	l.own = l.server.dir
	server := NewAuthority(t)
	l.CAFile = server.File
	cert, key := server.Issue()
	l.copyOwn("server.pem", cert)
	l.copyOwn("server.key", key)
	l.ShowCertificate()
	l.AcceptKey(engineKey)
	l.Write("api-key", engineKey)
	l.UseCodecKey("first")
	l.TemporalLocks = func(o *client.Options) {
		o.ConnectionOptions.TLS = server.Client(l.clients)
		o.Credentials = client.NewAPIKeyStaticCredentials(adminKey)
	}
	l.Restart()
	l.Prepare = l.AddSearchAttributes
	return l
}

// Kill ends the server as a crash does.
func (l *LockedTemporal) Kill() { l.server.process.Kill() }

// Restart starts the server with its data and what it knows of clients by now, and with further flags.
func (l *LockedTemporal) Restart(flags ...string) {
	l.t.Helper()
	path := func(name string) string { return filepath.Join(l.own, name) }
	l.copyOwn("clients.pem", l.clients.File)
	l.server.restart(append(flags, "--tls-cert-file", path("server.pem"), "--tls-key-file", path("server.key"), "--client-ca-file", path("clients.pem"),
		"--api-keys-file", path("api-keys"))...)
}

// Flags are what an engine needs to use it.
func (l *LockedTemporal) Flags() []string {
	path := func(name string) string { return filepath.Join(l.Dir, name) }
	return []string{"--temporal-ca-file", l.CAFile, "--temporal-cert-file", path("client.pem"), "--temporal-key-file", path("client.key"),
		"--temporal-api-key-file", path("api-key"), "--temporal-codec-key-dir", path("codec-keys")}
}

// NewClientCA has the server accept certificates of another CA alone, from its next start.
func (l *LockedTemporal) NewClientCA() { l.clients = NewAuthority(l.t) }

// ShowCertificate gives the engine a new certificate.
func (l *LockedTemporal) ShowCertificate() {
	cert, key := l.clients.Issue()
	l.copyTo(l.Dir, "client.key", key)
	l.copyTo(l.Dir, "client.pem", cert)
}

// AcceptKey has the server accept one key of the engine's alone, from now on.
func (l *LockedTemporal) AcceptKey(key string) {
	require.NoError(l.t, os.WriteFile(filepath.Join(l.own, "api-keys"), fmt.Appendf(nil, "writer %s\nadmin %s\n", key, adminKey), 0o600))
}

// UseCodecKey makes a key for payloads and has the engine use it. Those of before stay.
func (l *LockedTemporal) UseCodecKey(id string) {
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	l.Write(filepath.Join("codec-keys", id), base64.StdEncoding.EncodeToString(key)+"\n")
	l.Write(filepath.Join("codec-keys", "current"), id+"\n")
}

// Write puts a file into Dir, at once as a whole.
func (l *LockedTemporal) Write(name, content string) {
	path := filepath.Join(l.Dir, name)
	require.NoError(l.t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(l.t, os.WriteFile(filepath.Join(l.own, "partial"), []byte(content), 0o600))
	require.NoError(l.t, os.Rename(filepath.Join(l.own, "partial"), path))
}

func (l *LockedTemporal) copyOwn(name, from string) { l.copyTo(l.own, name, from) }

func (l *LockedTemporal) copyTo(dir, name, from string) {
	text, err := os.ReadFile(from)
	require.NoError(l.t, err)
	require.NoError(l.t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
}

// AddSearchAttributes adds Slipway's search attributes to a namespace, as an operator does whose right the engine lacks.
func (l *LockedTemporal) AddSearchAttributes(t testing.TB, namespace string) {
	t.Helper()
	missing := map[string]enumspb.IndexedValueType{}
	for _, key := range workflows.SearchAttributes {
		missing[key.GetName()] = key.GetValueType()
	}
	_, err := l.Temporal(t, namespace).OperatorService().AddSearchAttributes(context.Background(),
		&operatorservice.AddSearchAttributesRequest{Namespace: namespace, SearchAttributes: missing})
	require.NoError(t, err)
}
