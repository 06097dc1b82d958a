package harness

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Authority is a CA that issues certificates for a test.
type Authority struct {
	t    testing.TB
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	// File is the path of the CA's certificate.
	File string
}

// NewAuthority creates a CA.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t}
	var raw []byte
	a.key, raw = a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "test CA"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil)
	var err error
	a.cert, err = x509.ParseCertificate(raw)
	require.NoError(t, err)
	a.File = a.write("CERTIFICATE", raw)
	return a
}

func (a *Authority) sign(template *x509.Certificate, parent *x509.Certificate) (*ecdsa.PrivateKey, []byte) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(a.t, err)
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	signer := a.key
	if parent == nil {
		parent, signer = template, key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	require.NoError(a.t, err)
	return key, raw
}

func (a *Authority) write(kind string, raw []byte) string {
	a.t.Helper()
	path := filepath.Join(a.t.TempDir(), "part.pem")
	require.NoError(a.t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600))
	return path
}

// Issue makes a certificate that is valid for a server on this machine and for a client.
func (a *Authority) Issue() (certFile, keyFile string) {
	a.t.Helper()
	key, raw := a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "kusciaapi"}, DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}, a.cert)
	text, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(a.t, err)
	return a.write("CERTIFICATE", raw), a.write("PRIVATE KEY", text)
}

// Client returns the TLS configuration of a client that trusts the authority. If signer is not nil, the client has a
// certificate of signer.
func (a *Authority) Client(signer *Authority) *tls.Config {
	a.t.Helper()
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	config.RootCAs.AddCert(a.cert)
	if signer != nil {
		pair, err := tls.LoadX509KeyPair(signer.Issue())
		require.NoError(a.t, err)
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}
