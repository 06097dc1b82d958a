package kube_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/kube"
)

// authority is a CA that signs a certificate for a host; both are in PEM form.
func authority(t *testing.T, host string) (ca, certificate []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	now := time.Now()
	root := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true,
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), KeyUsage: x509.KeyUsageCertSign}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		DNSNames: []string{host}}
	sign := func(template *x509.Certificate) []byte {
		raw, err := x509.CreateCertificate(rand.Reader, template, root, &key.PublicKey, key)
		require.NoError(t, err)
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
	}
	return sign(root), sign(leaf)
}

func TestCheckTrust(t *testing.T) {
	t.Parallel()
	const host = "webhooks.slipway.svc"
	ca, certificate := authority(t, host)
	other, _ := authority(t, host)
	require.NoError(t, kube.CheckTrust(ca, certificate, host))
	require.NoError(t, kube.CheckTrust(append(other, ca...), certificate, host), "one of the CAs is enough")
	require.NoError(t, kube.CheckTrust(ca, ca, host), "the CA itself, which signs the server's certificates")
	require.ErrorContains(t, kube.CheckTrust(other, certificate, host), "does not trust the certificate of this server")
	require.ErrorContains(t, kube.CheckTrust(ca, certificate, "other.slipway.svc"), "other.slipway.svc")
	require.Error(t, kube.CheckTrust(nil, certificate, host), "without a CA, those of this machine count")
	require.Error(t, kube.CheckTrust([]byte("broken"), certificate, host))
	require.ErrorContains(t, kube.CheckTrust(ca, nil, host), "has no certificate")
}
