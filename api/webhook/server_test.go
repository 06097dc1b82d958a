package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admission "k8s.io/api/admissionregistration/v1"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/reload"
)

const patience = 20 * time.Second

// secrets is a Secret that several processes share.
type secrets struct {
	mu      sync.Mutex
	data    map[string][]byte
	version int
	// lostRaces is the number of writes that lose a race against another process.
	lostRaces int
}

func (s *secrets) WebhookCertificate(context.Context) (map[string][]byte, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.version == 0 {
		return nil, "", nil
	}
	return s.data, string(rune('a' + s.version)), nil
}

func (s *secrets) PutWebhookCertificate(_ context.Context, data map[string][]byte, version string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lostRaces > 0 {
		s.lostRaces--
		other, err := Renew(Material{}, hosts, issuedAt)
		s.data, s.version = other, s.version+1
		return errors.Join(err, failure.New(failure.Conflict, "another process was faster"))
	}
	if s.version > 0 != (version != "") || s.version > 0 && version != string(rune('a'+s.version)) {
		return failure.New(failure.Conflict, "another process was faster")
	}
	s.data, s.version = data, s.version+1
	return nil
}

// fakeCRDs is a fake API server that records the published webhook configuration.
type fakeCRDs struct {
	mu      sync.Mutex
	clients []admission.WebhookClientConfig
	// fails is the number of calls that fail.
	fails   int
	changed chan func()
}

func (p *fakeCRDs) PublishConversion(_ context.Context, client admission.WebhookClientConfig) (time.Duration, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fails > 0 {
		p.fails--
		return 0, errors.New("the API server is unavailable")
	}
	p.clients = append(p.clients, client)
	return 0, nil
}

func (p *fakeCRDs) WatchConversion(ctx context.Context, changed func()) {
	select {
	case p.changed <- changed:
	case <-ctx.Done():
	}
	<-ctx.Done()
}

func (p *fakeCRDs) last() (client admission.WebhookClientConfig, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.clients) == 0 {
		return client, 0
	}
	return p.clients[len(p.clients)-1], len(p.clients)
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

func start(t *testing.T, listen string, source Source, definitions *fakeCRDs) *Server {
	t.Helper()
	address, local := LocalAddress(listen)
	require.True(t, local)
	s := NewServer(Options{Listen: listen, Address: address, Source: source,
		Endpoints: []Endpoint{NewConversion(definitions)},
		Log:       slog.New(slog.NewTextHandler(io.Discard, nil))})
	require.NoError(t, s.Start(context.Background()))
	t.Cleanup(func() { require.NoError(t, s.Stop(context.Background())) })
	return s
}

// post sends a request as the API server does, using the published configuration.
func post(t *testing.T, client admission.WebhookClientConfig, body string) (status int, answer string, err error) {
	t.Helper()
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(client.CABundle))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport, Timeout: patience}).Post(*client.URL, "application/json",
		strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	return response.StatusCode, string(raw), err
}

const review = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"u","desiredAPIVersion":"rollouts.kruise.io/v1alpha1","objects":[
{"apiVersion":"rollouts.kruise.io/v1beta1","kind":"Rollout","metadata":{"name":"a"},"spec":{"strategy":{"canary":{"steps":[{"traffic":"5%","replicas":1}]}}}}]}}`

func TestConversionIsServedAndPublished(t *testing.T) {
	t.Parallel()
	definitions := &fakeCRDs{fails: 1, changed: make(chan func(), 1)}
	start(t, freeAddress(t), SelfSigned{Secrets: &secrets{lostRaces: 2}, Now: time.Now}, definitions)
	require.Eventually(t, func() bool {
		_, n := definitions.last()
		return n > 0
	}, patience, 10*time.Millisecond, "publishing is retried until it succeeds")
	client, n := definitions.last()
	require.Equal(t, 1, n)
	status, answer, err := post(t, client, review)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, answer)
	require.Contains(t, answer, `"weight":5`)
	status, answer, err = post(t, client, "{}")
	require.NoError(t, err)
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, answer, "the request is not a ConversionReview")

	(<-definitions.changed)()
	require.Eventually(t, func() bool {
		_, n := definitions.last()
		return n > 1
	}, patience, 10*time.Millisecond, "a change by another client is overwritten")
}

// Two servers share one certificate through the Secret.
func TestServersShareOneCertificate(t *testing.T) {
	t.Parallel()
	shared := &secrets{}
	one, two := &fakeCRDs{changed: make(chan func(), 1)}, &fakeCRDs{changed: make(chan func(), 1)}
	start(t, freeAddress(t), SelfSigned{Secrets: shared, Now: time.Now}, one)
	start(t, freeAddress(t), SelfSigned{Secrets: shared, Now: time.Now}, two)
	require.Eventually(t, func() bool {
		_, n := one.last()
		_, m := two.last()
		return n > 0 && m > 0
	}, patience, 10*time.Millisecond)
	a, _ := one.last()
	b, _ := two.last()
	require.Equal(t, string(a.CABundle), string(b.CABundle))
	for _, client := range []admission.WebhookClientConfig{a, b} {
		status, answer, err := post(t, client, review)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status, answer)
	}
}

// An expiring certificate in the Secret is replaced while the server runs: the next handshake uses the new one.
func TestServer_ServesRenewedCertificate_WithoutRestart(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	now := time.Now().Add(-certLife * 3 / 4)
	clock := func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}
	definitions := &fakeCRDs{changed: make(chan func(), 1)}
	server := start(t, freeAddress(t), SelfSigned{Secrets: &secrets{}, Now: clock}, definitions)
	require.Eventually(t, func() bool { _, n := definitions.last(); return n > 0 }, patience, 10*time.Millisecond)
	first := server.current.Load()
	mu.Lock()
	now = time.Now()
	mu.Unlock()
	(<-definitions.changed)()
	require.Eventually(t, func() bool {
		return !bytes.Equal(server.current.Load().Certificate[0], first.Certificate[0])
	}, patience, 10*time.Millisecond)
	client, _ := definitions.last()
	status, answer, err := post(t, client, review)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, answer)
}

// A certificate provided by the operator in files is served and published, and read again without a restart.
func TestServer_ServesCertificateFromFiles(t *testing.T) {
	t.Parallel()
	given := FromFiles{CertFile: filepath.Join(t.TempDir(), "tls.crt"), KeyFile: filepath.Join(t.TempDir(), "tls.key")}
	_, _, err := given.Read(context.Background(), nil)
	require.ErrorContains(t, err, "--webhook-cert-file")
	write := func() Material {
		m, err := Renew(Material{}, []string{"127.0.0.1"}, time.Now())
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(given.CertFile, append(bytes.Clone(m[keyCertificate]), m[keyBundle]...), 0o600))
		require.NoError(t, os.WriteFile(given.KeyFile, m[keyKey], 0o600))
		return m
	}
	first := write()
	definitions := &fakeCRDs{changed: make(chan func(), 1)}
	start(t, freeAddress(t), given, definitions)
	require.Eventually(t, func() bool { _, n := definitions.last(); return n > 0 }, patience, 10*time.Millisecond)
	client, _ := definitions.last()
	require.Contains(t, string(client.CABundle), string(first[keyBundle]))
	status, answer, err := post(t, client, review)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, answer)

	second := write()
	(<-definitions.changed)()
	require.Eventually(t, func() bool {
		client, _ = definitions.last()
		return strings.Contains(string(client.CABundle), string(second[keyBundle]))
	}, patience, 10*time.Millisecond)
	status, answer, err = post(t, client, review)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, answer)
	require.NoError(t, os.WriteFile(given.KeyFile, first[keyKey], 0o600))
	_, _, err = given.Read(context.Background(), nil)
	require.ErrorContains(t, err, "are no pair")
}

func TestAddress_ClientConfigAndHosts(t *testing.T) {
	t.Parallel()
	service := Address{Namespace: "slipway", Service: "webhooks", Port: 8443}
	client := service.client("/convert", []byte("ca"))
	require.Equal(t, "webhooks", client.Service.Name)
	require.Equal(t, "/convert", *client.Service.Path)
	require.Equal(t, []string{"webhooks.slipway.svc"}, service.hosts())
	require.Nil(t, client.URL)
	require.Equal(t, "https://a.example/base/convert",
		*Address{URL: "https://a.example/base/"}.client("/convert", nil).URL)
	require.Equal(t, []string{"a.example"}, Address{URL: "https://a.example:1/"}.hosts())
	for listen, local := range map[string]bool{"127.0.0.1:9443": true, "localhost:1": true, "[::1]:9443": true,
		"0.0.0.0:9443": false, ":9443": false, "a": false} {
		_, ok := LocalAddress(listen)
		require.Equal(t, local, ok, listen)
	}
}

// With CAs of clients, the gate serves only clients with a certificate of theirs; the file may change meanwhile.
// Conversion is served to all clients: API servers have no certificate for it.
func TestServer_RequiresClientCertificates(t *testing.T) {
	t.Parallel()
	authority := func() (ca []byte, cert tls.Certificate) {
		pair, key, err := newAuthority([]string{"127.0.0.1"}, time.Now())
		require.NoError(t, err)
		template := &x509.Certificate{NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
		leaf, leafKey, err := sign(template, pair, key)
		require.NoError(t, err)
		raw, rawKey, err := encode([]*x509.Certificate{leaf}, leafKey)
		require.NoError(t, err)
		cert, err = tls.X509KeyPair(raw, rawKey)
		require.NoError(t, err)
		ca, _, err = encode([]*x509.Certificate{pair}, key)
		require.NoError(t, err)
		return ca, cert
	}
	ca, own := authority()
	path := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(path, ca, 0o600))
	files, err := reload.New(func() (*x509.CertPool, error) { return reload.ReadCA("clients", path) }, 0, path)
	require.NoError(t, err)
	definitions := &fakeCRDs{changed: make(chan func(), 1)}
	listen := freeAddress(t)
	address, _ := LocalAddress(listen)
	gate := NewGate(Gate{Engine: func(string, string) bool { return true },
		Publish: func(context.Context, admission.WebhookClientConfig) (time.Duration, error) { return 0, nil }})
	s := NewServer(Options{Listen: listen, Address: address, Source: SelfSigned{Secrets: &secrets{}, Now: time.Now},
		Endpoints: []Endpoint{gate, NewConversion(definitions)}, ClientCAs: files.Get,
		Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, s.Start(context.Background()))
	t.Cleanup(func() { require.NoError(t, s.Stop(context.Background())) })
	require.Eventually(t, func() bool { _, n := definitions.last(); return n > 0 }, patience, 10*time.Millisecond)
	config, _ := definitions.last()
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(config.CABundle))
	send := func(path, body string, certs ...tls.Certificate) (int, error) {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: certs},
			ForceAttemptHTTP2: true}
		defer transport.CloseIdleConnections()
		response, err := (&http.Client{Transport: transport, Timeout: patience}).Post("https://"+listen+path,
			"application/json", strings.NewReader(body))
		if err != nil {
			return 0, err
		}
		return response.StatusCode, response.Body.Close()
	}
	edit := `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","operation":"CREATE",` +
		`"kind":{"group":"apps","kind":"Deployment"},"object":{}}}`
	status, err := send(PathMutate, edit)
	require.NoError(t, err)
	require.Equal(t, http.StatusForbidden, status, "no certificate")
	status, err = send(PathMutate, edit, own)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	status, err = send(PathConvert, review)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, "API servers have no certificate for conversions")

	otherCA, other := authority()
	_, err = send(PathMutate, edit, other)
	require.Error(t, err, "a certificate of another CA fails the handshake")
	require.NoError(t, os.WriteFile(path, otherCA, 0o600))
	status, err = send(PathMutate, edit, other)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, "the file has changed")
	_, err = send(PathMutate, edit, own)
	require.Error(t, err, "the former CA counts no longer")
	require.NoError(t, os.WriteFile(path, []byte("broken"), 0o600))
	status, err = send(PathMutate, edit, other)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, "the last good file counts")
}
