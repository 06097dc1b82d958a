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
		requireTrusted(t, m[keyBundle], m, name, now)
	}
	return m
}

// requireTrusted checks that a client that trusts the bundle accepts the certificate for the host.
func requireTrusted(t *testing.T, bundle []byte, m Material, host string, now time.Time) {
	t.Helper()
	pair, err := tls.X509KeyPair(m[keyCertificate], m[keyKey])
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
	require.NotEqual(t, first[keyCertificate], second[keyCertificate], "less than a third of the lifetime is left")
	require.Equal(t, first[keyBundle], second[keyBundle], "clients trust the same CA")
	late := renewed(t, first, hosts, issuedAt.Add(2*certLife))
	require.NotEqual(t, first[keyCertificate], late[keyCertificate], "an expired certificate is replaced")
}

// A new CA is published a day before it signs, and the old one is trusted for a day more: at every moment, clients trust
// the certificate that is served.
func TestRenew_ReplacesCAWithoutInterruption(t *testing.T) {
	t.Parallel()
	before := renewed(t, Material{}, hosts, issuedAt)
	due := issuedAt.Add(caLife*2/3 + time.Hour)
	before = renewed(t, before, hosts, due.Add(-time.Hour*24*10))
	published := renewed(t, before, hosts, due)
	require.NotEqual(t, before[keyBundle], published[keyBundle])
	require.Equal(t, before[keyCertificate], published[keyCertificate],
		"the old CA's certificate is served while clients read the new bundle")
	requireTrusted(t, published[keyBundle], before, hosts[0], due)
	signed := renewed(t, published, hosts, due.Add(caPropagation+clockSkew))
	require.NotEqual(t, published[keyCertificate], signed[keyCertificate])
	require.Equal(t, published[keyBundle], signed[keyBundle])
	alone := renewed(t, signed, hosts, due.Add(caOverlap))
	require.Len(t, authorities(t, alone), 1, "the old CA is trusted no longer")
	require.Equal(t, signed[keyCertificate], alone[keyCertificate])
	asleep := renewed(t, published, hosts, due.Add(caOverlap+time.Hour))
	require.Len(t, authorities(t, asleep), 1)
	require.NotEqual(t, published[keyCertificate], asleep[keyCertificate], "an engine that did not run meanwhile")
}

// authorities returns the trusted CAs.
func authorities(t *testing.T, m Material) []*x509.Certificate {
	t.Helper()
	cas, key := m.authority(issuedAt)
	require.NotNil(t, key)
	return cas
}

// TestAuthority_SignsForItsHostsOnly: the key of the CA, which API servers trust for any name, is of no use for others.
func TestAuthority_SignsForItsHostsOnly(t *testing.T) {
	t.Parallel()
	for name, own := range map[string][]string{"Both": hosts, "Name": hosts[1:], "Address": hosts[:1],
		"IPv6": {"::1"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := renewed(t, Material{}, own, issuedAt)
			cas, key := m.authority(issuedAt)
			require.Len(t, cas, 1)
			require.LessOrEqual(t, cas[0].NotAfter.Sub(issuedAt), 366*24*time.Hour)
			roots := x509.NewCertPool()
			roots.AddCert(cas[0])
			for _, host := range []string{"kubernetes.default.svc", "10.96.0.1", "fd00::1", "svc", "invalid"} {
				forged, _, err := issue(cas[0], key, append([]string{host}, own...), issuedAt)
				require.NoError(t, err)
				_, err = forged.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: issuedAt})
				require.Error(t, err, "a certificate for %s", host)
			}
		})
	}
}

// TestRenew_ReplacesUnlimitedCA: the CA of an earlier version, which signs for every name and lasts for years, is
// trusted until all processes have a certificate of a new one.
func TestRenew_ReplacesUnlimitedCA(t *testing.T) {
	t.Parallel()
	ca, key, err := sign(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: issuedAt.Add(-time.Hour), NotAfter: issuedAt.Add(10 * caLife)}, nil, nil)
	require.NoError(t, err)
	cert, certKey, err := issue(ca, key, hosts, issuedAt)
	require.NoError(t, err)
	old := Material{}
	old[keyBundle], old[keyCAKey], err = encode([]*x509.Certificate{ca}, key)
	require.NoError(t, err)
	old[keyCertificate], old[keyKey], err = encode([]*x509.Certificate{cert}, certKey)
	require.NoError(t, err)

	published := renewed(t, old, hosts, issuedAt)
	require.Len(t, authorities(t, published), 2)
	require.Equal(t, old[keyCertificate], published[keyCertificate], "clients have to read the new bundle first")
	signed := renewed(t, published, hosts, issuedAt.Add(caPropagation))
	require.NotEqual(t, old[keyCertificate], signed[keyCertificate])
	require.Len(t, authorities(t, renewed(t, signed, hosts, issuedAt.Add(caOverlap))), 1)
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
			Material{keyBundle: sound[keyBundle], keyCertificate: sound[keyCertificate], keyKey: sound[keyKey]}, false},
		"OthersCAKey": {"the key of another CA", Material{keyBundle: sound[keyBundle], keyCAKey: other[keyCAKey],
			keyCertificate: sound[keyCertificate], keyKey: sound[keyKey]}, false},
		"Garbage": {"no PEM", Material{keyBundle: []byte("a"), keyCAKey: []byte("b"), keyCertificate: []byte("c"),
			keyKey: []byte("d")}, false},
		"NoCert": {"only the certificate is missing", Material{keyBundle: sound[keyBundle], keyCAKey: sound[keyCAKey]}, true},
		"OthersCert": {"a certificate of another CA",
			Material{keyBundle: sound[keyBundle], keyCAKey: sound[keyCAKey], keyCertificate: other[keyCertificate],
				keyKey: other[keyKey]}, true},
		"OthersKey": {"the key of another certificate",
			Material{keyBundle: sound[keyBundle], keyCAKey: sound[keyCAKey], keyCertificate: sound[keyCertificate],
				keyKey: other[keyKey]}, true},
		"KeyOfNothing": {"an unreadable CA key", Material{keyBundle: sound[keyBundle], keyCAKey: []byte("x"),
			keyCertificate: sound[keyCertificate], keyKey: sound[keyKey]}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repaired := renewed(t, test.broken, hosts, issuedAt)
			require.Equal(t, test.sameCA, string(repaired[keyBundle]) == string(sound[keyBundle]), test.reason)
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
