package webhook

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	issuedAt = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	hosts    = []string{"127.0.0.1", "slipway.slipway.svc"}
)

func renewed(t *testing.T, m Material, names []string, now time.Time) Material {
	t.Helper()
	m, err := Renew(m, names, now)
	require.NoError(t, err)
	for _, name := range names {
		requireTrusted(t, m.Bundle, m, name, now)
	}
	return m
}

// requireTrusted checks that a client that trusts the bundle accepts the certificate for the host.
func requireTrusted(t *testing.T, bundle []byte, m Material, host string, now time.Time) {
	t.Helper()
	pair, err := tls.X509KeyPair(m.Certificate, m.Key)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(bundle))
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: now})
	require.NoError(t, err)
}

func TestRenew_ReplacesCertificate_WhenLessThanAThirdOfLifetimeIsLeft(t *testing.T) {
	t.Parallel()
	first := renewed(t, Material{}, hosts, issuedAt)
	require.Equal(t, first, renewed(t, first, hosts, issuedAt.Add(certLife/2)), "nothing is due")
	second := renewed(t, first, hosts, issuedAt.Add(certLife*3/4))
	require.NotEqual(t, first.Certificate, second.Certificate, "less than a third of the lifetime is left")
	require.Equal(t, first.Bundle, second.Bundle, "clients trust the same CA")
	late := renewed(t, first, hosts, issuedAt.Add(2*certLife))
	require.NotEqual(t, first.Certificate, late.Certificate, "an expired certificate is replaced")
}

// A new CA is published a day before it signs, and the old one is trusted until it expires: at every moment, clients
// trust the certificate that is served.
func TestRenew_ReplacesCAWithoutInterruption(t *testing.T) {
	t.Parallel()
	before := renewed(t, Material{}, hosts, issuedAt)
	due := issuedAt.Add(caLife*2/3 + time.Hour)
	before = renewed(t, before, hosts, due.Add(-time.Hour*24*10))
	published := renewed(t, before, hosts, due)
	require.NotEqual(t, before.Bundle, published.Bundle)
	require.Equal(t, before.Certificate, published.Certificate,
		"the old CA's certificate is served while clients read the new bundle")
	requireTrusted(t, published.Bundle, before, hosts[0], due)
	signed := renewed(t, published, hosts, due.Add(caPropagation+clockSkew))
	require.NotEqual(t, published.Certificate, signed.Certificate)
	require.Equal(t, published.Bundle, signed.Bundle)
	expired := renewed(t, signed, hosts, issuedAt.Add(caLife+time.Hour))
	require.Less(t, len(expired.Bundle), len(published.Bundle)+len(before.Bundle)/2,
		"an expired CA is removed from the bundle")
}

func TestRenew_ReplacesInvalidParts(t *testing.T) {
	t.Parallel()
	sound, other := renewed(t, Material{}, hosts, issuedAt), renewed(t, Material{}, hosts, issuedAt)
	for name, test := range map[string]struct {
		reason string
		broken Material
		sameCA bool
	}{
		"NoKey": {"a CA without its key is replaced",
			Material{Bundle: sound.Bundle, Certificate: sound.Certificate, Key: sound.Key}, false},
		"OthersCAKey": {"the key of another CA", Material{Bundle: sound.Bundle, CAKey: other.CAKey,
			Certificate: sound.Certificate, Key: sound.Key}, false},
		"Garbage": {"no PEM", Material{Bundle: []byte("a"), CAKey: []byte("b"), Certificate: []byte("c"),
			Key: []byte("d")}, false},
		"NoCert": {"only the certificate is missing", Material{Bundle: sound.Bundle, CAKey: sound.CAKey}, true},
		"OthersCert": {"a certificate of another CA",
			Material{Bundle: sound.Bundle, CAKey: sound.CAKey, Certificate: other.Certificate, Key: other.Key}, true},
		"OthersKey": {"the key of another certificate",
			Material{Bundle: sound.Bundle, CAKey: sound.CAKey, Certificate: sound.Certificate, Key: other.Key}, true},
		"KeyOfNothing": {"an unreadable CA key", Material{Bundle: sound.Bundle, CAKey: []byte("x"),
			Certificate: sound.Certificate, Key: sound.Key}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repaired := renewed(t, test.broken, hosts, issuedAt)
			require.Equal(t, test.sameCA, string(repaired.Bundle) == string(sound.Bundle), test.reason)
			require.Equal(t, repaired, renewed(t, repaired, hosts, issuedAt), "a second renewal changes nothing")
		})
	}
}

// Processes of one engine that are reached under different names share one certificate.
func TestRenew_KeepsNamesOfOtherProcesses(t *testing.T) {
	t.Parallel()
	first := renewed(t, Material{}, hosts[:1], issuedAt)
	second := renewed(t, first, hosts[1:], issuedAt)
	require.Equal(t, second, renewed(t, second, hosts, issuedAt), "both names are in it")
}
