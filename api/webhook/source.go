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

// Source is where the certificate comes from.
type Source interface {
	// Read is the certificate as it should be served now, and the CAs that clients trust.
	Read(ctx context.Context, hosts []string) (certificate tls.Certificate, bundle []byte, err error)
}

// Secrets keeps the certificate that all processes of an engine share.
type Secrets interface {
	// WebhookCertificate is what the Secret holds, and its version; both are empty when it isn't there.
	WebhookCertificate(ctx context.Context) (data map[string][]byte, version string, err error)
	// PutWebhookCertificate makes the Secret, or replaces that version of it; a change since is a Conflict.
	PutWebhookCertificate(ctx context.Context, data map[string][]byte, version string) error
}

// Own is a certificate that the engine makes and renews itself.
type Own struct {
	Secrets Secrets
	Now     func() time.Time
}

// Read renews the certificate in the Secret if it is time to.
func (o Own) Read(ctx context.Context, hosts []string) (cert tls.Certificate, bundle []byte, err error) {
	var m Material
	err = failure.UntilNoConflict("the certificate of the webhook", func() error {
		data, version, err := o.Secrets.WebhookCertificate(ctx)
		if err != nil {
			return err
		}
		if m, err = Renewed(materialOf(data), hosts, o.Now()); err != nil {
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

// Given is a certificate in files, which are read again each time.
type Given struct{ CertFile, KeyFile string }

// Read trusts the certificates of the file: a chain, or the listener's alone.
func (g Given) Read(context.Context, []string) (tls.Certificate, []byte, error) {
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
