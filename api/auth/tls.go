package auth

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"slipway.io/slipway/reload"
)

// TLSFiles are the certificate and the key of an API, and the CAs of its clients. Connections use the content that the
// files have when they begin.
type TLSFiles struct {
	current *reload.Lasting[*tls.Config]
}

// filesMaxAge is the maximum age of the cached content of certificate files.
const filesMaxAge = time.Second

// LoadTLS reads the certificate and the key of an API. If ca is not empty, client certificates are verified against the
// CAs in it, according to clients.
func LoadTLS(api string, log *slog.Logger, certificate, key, ca string, clients tls.ClientAuthType) (*TLSFiles,
	error) {
	load := func() (*tls.Config, error) { return readTLS(api, certificate, key, ca, clients) }
	paths := slices.DeleteFunc([]string{certificate, key, ca}, func(path string) bool { return path == "" })
	current, err := reload.NewLasting("a certificate or key of "+api, log, load, filesMaxAge, paths...)
	if err != nil {
		return nil, err
	}
	return &TLSFiles{current}, nil
}

func readTLS(api, certificate, key, ca string, clients tls.ClientAuthType) (*tls.Config, error) {
	own, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("the certificate of %s cannot be used: %w", api, err)
	}
	// net/http announces its protocols only in the configuration that it begins with
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own},
		NextProtos: []string{"h2", "http/1.1"}}
	if ca == "" {
		return config, nil
	}
	if config.ClientCAs, err = reload.ReadCA("the CA of the clients of "+api, ca); err != nil {
		return nil, err
	}
	config.ClientAuth = clients
	return config, nil
}

// Config returns the configuration of a listener; nil, for no TLS, without files.
func (f *TLSFiles) Config() *tls.Config {
	if f == nil {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return f.current.Get(), nil }}
}

// ClientCAs returns the CAs of accepted client certificates; nil: none is required.
func (f *TLSFiles) ClientCAs() *x509.CertPool {
	if f == nil {
		return nil
	}
	return f.current.Get().ClientCAs
}
