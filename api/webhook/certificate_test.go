package webhook

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	born  = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	hosts = []string{"127.0.0.1", "slipway.slipway.svc"}
)

func renewed(t *testing.T, m Material, names []string, now time.Time) Material {
	t.Helper()
	m, err := Renewed(m, names, now)
	require.NoError(t, err)
	for _, name := range names {
		requireTrusted(t, m.Bundle, m, name, now)
	}
	return m
}

// requireTrusted fails unless a client that trusts the bundle takes the certificate for that host.
func requireTrusted(t *testing.T, bundle []byte, m Material, host string, now time.Time) {
	t.Helper()
	pair, err := tls.X509KeyPair(m.Certificate, m.Key)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(bundle))
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: now})
	require.NoError(t, err)
}

func TestACertificateIsRenewedInTime(t *testing.T) {
	t.Parallel()
	first := renewed(t, Material{}, hosts, born)
	require.Equal(t, first, renewed(t, first, hosts, born.Add(certLife/2)), "nothing is due")
	second := renewed(t, first, hosts, born.Add(certLife*3/4))
	require.NotEqual(t, first.Certificate, second.Certificate, "less than a third is left")
	require.Equal(t, first.Bundle, second.Bundle, "clients trust the same CA")
	late := renewed(t, first, hosts, born.Add(2*certLife))
	require.NotEqual(t, first.Certificate, late.Certificate, "a process that slept makes a new one")
}

// A new CA is published a day before it signs, and the old one is trusted as long as it lives: at no time is there a client that trusts neither.
func TestTheCAIsRenewedWithoutABreak(t *testing.T) {
	t.Parallel()
	before := renewed(t, Material{}, hosts, born)
	due := born.Add(caLife*2/3 + time.Hour)
	before = renewed(t, before, hosts, due.Add(-time.Hour*24*10))
	published := renewed(t, before, hosts, due)
	require.NotEqual(t, before.Bundle, published.Bundle)
	require.Equal(t, before.Certificate, published.Certificate, "the old CA's certificate is served while clients read the new bundle")
	requireTrusted(t, published.Bundle, before, hosts[0], due)
	signed := renewed(t, published, hosts, due.Add(caKnown+clockSkew))
	require.NotEqual(t, published.Certificate, signed.Certificate)
	require.Equal(t, published.Bundle, signed.Bundle)
	over := renewed(t, signed, hosts, born.Add(caLife+time.Hour))
	require.Less(t, len(over.Bundle), len(published.Bundle)+len(before.Bundle)/2, "a CA that has expired goes")
}

func TestWhatIsBrokenIsMadeAnew(t *testing.T) {
	t.Parallel()
	sound, other := renewed(t, Material{}, hosts, born), renewed(t, Material{}, hosts, born)
	for name, test := range map[string]struct {
		reason string
		broken Material
		sameCA bool
	}{
		"NoKey":        {"a CA that can't sign is replaced", Material{Bundle: sound.Bundle, Certificate: sound.Certificate, Key: sound.Key}, false},
		"OthersCAKey":  {"a key of another CA", Material{Bundle: sound.Bundle, CAKey: other.CAKey, Certificate: sound.Certificate, Key: sound.Key}, false},
		"Garbage":      {"no PEM", Material{Bundle: []byte("a"), CAKey: []byte("b"), Certificate: []byte("c"), Key: []byte("d")}, false},
		"NoCert":       {"only the certificate is gone", Material{Bundle: sound.Bundle, CAKey: sound.CAKey}, true},
		"OthersCert":   {"a certificate of another CA", Material{Bundle: sound.Bundle, CAKey: sound.CAKey, Certificate: other.Certificate, Key: other.Key}, true},
		"OthersKey":    {"no pair", Material{Bundle: sound.Bundle, CAKey: sound.CAKey, Certificate: sound.Certificate, Key: other.Key}, true},
		"KeyOfNothing": {"a key that isn't one of a certificate", Material{Bundle: sound.Bundle, CAKey: []byte("x"), Certificate: sound.Certificate, Key: sound.Key}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mended := renewed(t, test.broken, hosts, born)
			require.Equal(t, test.sameCA, string(mended.Bundle) == string(sound.Bundle), test.reason)
			require.Equal(t, mended, renewed(t, mended, hosts, born), "it is mended once")
		})
	}
}

// Processes of one engine that are reached under different names share one certificate.
func TestNamesAreAdded(t *testing.T) {
	t.Parallel()
	first := renewed(t, Material{}, hosts[:1], born)
	second := renewed(t, first, hosts[1:], born)
	require.Equal(t, second, renewed(t, second, hosts, born), "both names are in it")
}
