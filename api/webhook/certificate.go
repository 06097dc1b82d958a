package webhook

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net"
	"os"
	"slices"
	"time"

	"slipway.io/slipway/release/failure"
)

// Lifetimes of certificates. They are renewed when a third of the lifetime is left.
const (
	caLife   = 365 * 24 * time.Hour
	certLife = 90 * 24 * time.Hour
	// caPropagation is how long a new CA is published before it signs: by then every API server has read it.
	caPropagation = 24 * time.Hour
	// caOverlap is how long the CAs before a new one are trusted: by then every process serves the new one's certificate.
	caOverlap = 2 * caPropagation
	// clockSkew is the tolerated difference between clocks in the cluster.
	clockSkew = 10 * time.Minute
)

// Material is a CA and a certificate signed by it, in PEM form, as the Secret stores them.
type Material map[string][]byte

// The keys of a Material.
const (
	// keyBundle contains the trusted CAs, newest first; keyCAKey is the key of the newest.
	keyBundle, keyCAKey = "ca.crt", "ca.key"
	// keyCertificate and keyKey belong to the listener.
	keyCertificate, keyKey = "tls.crt", "tls.key"
)

// Renew returns a copy of old with every part replaced that is missing, invalid, about to expire, or not valid for one
// of the hosts: the same if nothing needs renewal.
func Renew(old Material, hosts []string, now time.Time) (Material, error) {
	m := Material{}
	maps.Copy(m, old)
	leaf, names := m.leaf(now), slices.Clone(hosts)
	if leaf != nil { // keep the names in the old certificate: other processes of this engine may be reached under them
		names = append(names, namesOf(leaf)...)
	}
	cas, key, err := m.renewAuthority(names, now)
	if err != nil {
		return m, err
	}
	leaf = m.leaf(now) // its CA may be trusted no longer
	if leaf != nil && validFor(leaf, hosts, now) &&
		(leaf.CheckSignatureFrom(cas[0]) == nil || now.Sub(cas[0].NotBefore) < caPropagation) {
		return m, nil
	}
	cert, certKey, err := issue(cas[0], key, names, now)
	if err != nil {
		return m, err
	}
	m[keyCertificate], m[keyKey], err = encode([]*x509.Certificate{cert}, certKey)
	return m, err
}

// renewAuthority makes a new CA if there is none that signs for the hosts and lasts, and drops CAs that no process has
// a certificate of any longer. It returns the trusted CAs, newest first, and the key of the newest.
func (m Material) renewAuthority(hosts []string, now time.Time) (cas []*x509.Certificate, key *ecdsa.PrivateKey,
	err error) {
	cas, key = m.authority(now)
	switch {
	case key == nil || cas[0].NotAfter.Sub(now) < caLife/3 || !limitedTo(cas[0], hosts):
		fresh, freshKey, err := newAuthority(hosts, now)
		if err != nil {
			return nil, nil, err
		}
		cas, key = append([]*x509.Certificate{fresh}, cas...), freshKey
	case len(cas) > 1 && now.Sub(cas[0].NotBefore) >= caOverlap:
		cas = cas[:1]
	default:
		return cas, key, nil
	}
	m[keyBundle], m[keyCAKey], err = encode(cas, key)
	return cas, key, err
}

// limitedTo reports whether a CA can sign for these hosts, and for limited ones only.
func limitedTo(ca *x509.Certificate, hosts []string) bool {
	return ca.PermittedDNSDomainsCritical && !slices.ContainsFunc(hosts, func(host string) bool {
		if ip := net.ParseIP(host); ip != nil {
			return !slices.ContainsFunc(ca.PermittedIPRanges, func(n *net.IPNet) bool { return n.Contains(ip) })
		}
		return !slices.Contains(ca.PermittedDNSDomains, host)
	})
}

// authority returns the CAs that have not expired, newest first, and the key of the newest; key is nil if it cannot
// sign.
func (m Material) authority(now time.Time) (cas []*x509.Certificate, key *ecdsa.PrivateKey) {
	for block, rest := pem.Decode(m[keyBundle]); block != nil; block, rest = pem.Decode(rest) {
		if ca, err := x509.ParseCertificate(block.Bytes); err == nil && now.Before(ca.NotAfter) {
			cas = append(cas, ca)
		}
	}
	block, _ := pem.Decode(m[keyCAKey])
	if block == nil || len(cas) == 0 {
		return cas, nil
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, is := parsed.(*ecdsa.PrivateKey)
	if err != nil || !is || !key.PublicKey.Equal(cas[0].PublicKey) {
		return cas, nil
	}
	return cas, key
}

// leaf returns the listener's certificate if it matches its key, is signed by one of the CAs and is valid; else nil.
func (m Material) leaf(now time.Time) *x509.Certificate {
	pair, err := tls.X509KeyPair(m[keyCertificate], m[keyKey])
	if err != nil {
		return nil
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(m[keyBundle])
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now}); err != nil {
		return nil
	}
	return pair.Leaf
}

// validFor reports whether at least a third of the certificate's lifetime is left and it covers all hosts.
func validFor(leaf *x509.Certificate, hosts []string, now time.Time) bool {
	unnamed := func(host string) bool { return leaf.VerifyHostname(host) != nil }
	return leaf.NotAfter.Sub(now) >= certLife/3 && !slices.ContainsFunc(hosts, unnamed)
}

func namesOf(leaf *x509.Certificate) []string {
	names := slices.Clone(leaf.DNSNames)
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	return names
}

// newAuthority makes a CA whose key, should it leak, signs for these hosts only: API servers trust it for any name.
func newAuthority(hosts []string, now time.Time) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "slipway-webhook-ca"}, IsCA: true,
		BasicConstraintsValid: true, MaxPathLenZero: true, PermittedDNSDomainsCritical: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: now.Add(-clockSkew), NotAfter: now.Add(caLife)}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			if four := ip.To4(); four != nil {
				ip = four
			}
			template.PermittedIPRanges = append(template.PermittedIPRanges,
				&net.IPNet{IP: ip, Mask: net.CIDRMask(8*len(ip), 8*len(ip))})
		} else {
			template.PermittedDNSDomains = append(template.PermittedDNSDomains, host)
		}
	}
	// A kind of name without a permitted one would not be limited.
	if len(template.PermittedDNSDomains) == 0 {
		template.PermittedDNSDomains = []string{noHost}
	}
	if len(template.PermittedIPRanges) == 0 {
		template.ExcludedIPRanges = []*net.IPNet{{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)},
			{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}}
	}
	return sign(template, nil, nil)
}

// noHost is a name that no host has (RFC 2606).
const noHost = "slipway.invalid"

func issue(ca *x509.Certificate, caKey *ecdsa.PrivateKey, hosts []string, now time.Time) (*x509.Certificate,
	*ecdsa.PrivateKey, error) {
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "slipway-webhook"},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(certLife)}
	hosts = slices.Clone(hosts)
	slices.Sort(hosts)
	for _, host := range slices.Compact(hosts) {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return sign(template, ca, caKey)
}

// sign creates a certificate with a new key; without a CA the certificate is self-signed.
func sign(template, ca *x509.Certificate, caKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make the key of a certificate: %w", err)
	}
	if ca == nil {
		ca, caKey = template, key
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, nil, fmt.Errorf("make a certificate: %w", err)
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, ca, &key.PublicKey, caKey)
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(raw)
	return cert, key, err
}

func encode(certs []*x509.Certificate, key *ecdsa.PrivateKey) (certPEM, keyPEM []byte, err error) {
	var out bytes.Buffer
	for _, cert := range certs {
		err = errors.Join(err, pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}))
	}
	raw, wrong := x509.MarshalPKCS8PrivateKey(key)
	return out.Bytes(), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), errors.Join(err, wrong)
}

// Source provides the listener's certificate.
type Source interface {
	// Read returns the certificate to serve and the CAs that clients should trust.
	Read(ctx context.Context, hosts []string) (certificate tls.Certificate, bundle []byte, err error)
}

// Secrets stores the certificate that all processes of an engine share.
type Secrets interface {
	// WebhookCertificate returns the Secret's data and resource version; both are empty if it does not exist.
	WebhookCertificate(ctx context.Context) (data map[string][]byte, version string, err error)
	// PutWebhookCertificate creates the Secret, or replaces that version of it; it returns a Conflict if the Secret has
	// changed.
	PutWebhookCertificate(ctx context.Context, data map[string][]byte, version string) error
}

// SelfSigned is a Source that issues and renews its own certificate.
type SelfSigned struct {
	Secrets Secrets
	Now     func() time.Time
}

// Read renews the certificate in the Secret if it is due.
func (o SelfSigned) Read(ctx context.Context, hosts []string) (cert tls.Certificate, bundle []byte, err error) {
	var m Material
	err = failure.RetryOnConflict("the certificate of the webhook", func() error {
		data, version, err := o.Secrets.WebhookCertificate(ctx)
		if err != nil {
			return err
		}
		if m, err = Renew(data, hosts, o.Now()); err != nil {
			return err
		}
		if maps.EqualFunc(m, data, bytes.Equal) {
			return nil
		}
		return o.Secrets.PutWebhookCertificate(ctx, m, version)
	})
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	cert, err = tls.X509KeyPair(m[keyCertificate], m[keyKey])
	return cert, m[keyBundle], err
}

// FromFiles is a Source that reads a certificate from files, on every Read.
type FromFiles struct{ CertFile, KeyFile string }

// Read returns the certificate file as the CA bundle, too: it is a chain, or the self-signed certificate alone.
func (g FromFiles) Read(context.Context, []string) (tls.Certificate, []byte, error) {
	bundle, err := os.ReadFile(g.CertFile)
	if err != nil {
		return tls.Certificate{}, nil, fmt.Errorf("--webhook-cert-file: %w", err)
	}
	key, err := os.ReadFile(g.KeyFile)
	if err != nil {
		return tls.Certificate{}, nil, fmt.Errorf("--webhook-key-file: %w", err)
	}
	cert, err := tls.X509KeyPair(bundle, key)
	if err != nil {
		return tls.Certificate{}, nil, fmt.Errorf("--webhook-cert-file and --webhook-key-file are no pair: %w", err)
	}
	return cert, bundle, nil
}
