package kube

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"

	admission "k8s.io/api/admissionregistration/v1"
	"k8s.io/utils/ptr"
)

// CheckTrust returns why a client that trusts only these CAs, and expects this host, does not accept a server that
// presents this certificate chain; nil if it does. Without CAs, the client trusts those of this machine. All are in PEM
// form. A chain that begins with a CA is what the server signs its certificates with: no host is compared then.
func CheckTrust(cas, presented []byte, host string) error {
	chain := Certificates(presented)
	if len(chain) == 0 {
		return errors.New("the server has no certificate")
	}
	options := x509.VerifyOptions{Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	for _, c := range chain[1:] {
		options.Intermediates.AddCert(c)
	}
	if len(cas) > 0 {
		options.Roots = x509.NewCertPool()
		for _, c := range Certificates(cas) {
			options.Roots.AddCert(c)
		}
	}
	if !chain[0].IsCA {
		options.DNSName = host
	}
	if _, err := chain[0].Verify(options); err != nil {
		return fmt.Errorf("it does not trust the certificate of this server: %w", err)
	}
	return nil
}

// WebhookHost returns the host that API servers expect in the certificate of a webhook.
func WebhookHost(client admission.WebhookClientConfig) string {
	if client.Service != nil {
		return client.Service.Name + "." + client.Service.Namespace + ".svc"
	}
	parsed, err := url.Parse(ptr.Deref(client.URL, ""))
	if err != nil {
		return ""
	}
	return parsed.Hostname()
}

// Certificates returns the certificates of a text in PEM form, without those that cannot be read.
func Certificates(text []byte) (out []*x509.Certificate) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			out = append(out, c)
		}
	}
	return out
}
