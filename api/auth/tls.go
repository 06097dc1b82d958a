package auth

import (
	"crypto/tls"
	"fmt"

	"slipway.io/slipway/reload"
)

// LoadTLS reads the certificate and the key of an API. If ca is not empty, client certificates are verified against the
// CAs in it, according to clients.
func LoadTLS(api, certificate, key, ca string, clients tls.ClientAuthType) (*tls.Config, error) {
	own, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("the certificate of %s cannot be used: %w", api, err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own}}
	if ca == "" {
		return config, nil
	}
	if config.ClientCAs, err = reload.ReadCA("the CA of the clients of "+api, ca); err != nil {
		return nil, err
	}
	config.ClientAuth = clients
	return config, nil
}
