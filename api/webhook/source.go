package webhook

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"os"
	"time"

	"slipway.io/slipway/release/failure"
)

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
		if m, err = Renew(materialOf(data), hosts, o.Now()); err != nil {
			return err
		}
		if maps.EqualFunc(m.data(), data, func(a, b []byte) bool { return string(a) == string(b) }) {
			return nil
		}
		return o.Secrets.PutWebhookCertificate(ctx, m.data(), version)
	})
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	cert, err = tls.X509KeyPair(m.Certificate, m.Key)
	return cert, m.Bundle, err
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
