package auth

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// LoadTLS reads the certificate and the key of an API. If ca is not empty, clients' certificates are checked against the CAs in it, as
// clients says.
func LoadTLS(api, certificate, key, ca string, clients tls.ClientAuthType) (*tls.Config, error) {
	own, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("the certificate of %s cannot be used: %w", api, err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own}}
	if ca == "" {
		return config, nil
	}
	if config.ClientCAs, err = ReadCA("the CA of the clients of "+api, ca); err != nil {
		return nil, err
	}
	config.ClientAuth = clients
	return config, nil
}

// ReadCA reads certificates in PEM form. what names them in errors.
func ReadCA(what, path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", what, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s, %s, holds no certificate in PEM form", what, path)
	}
	return pool, nil
}
