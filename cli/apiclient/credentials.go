package apiclient

import (
	"crypto/tls"
	"errors"
	"fmt"

	"slipway.io/slipway/api/auth"
	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/reload"
)

// TLS returns the CA that verifies the engine's certificate and the client certificate to present.
func TLS(s settings.Settings) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if (s.APICertFile == "") != (s.APIKeyFile == "") {
		return nil, errors.New("--api-cert-file and --api-key-file must be set together")
	}
	if s.APICertFile != "" {
		own, err := tls.LoadX509KeyPair(s.APICertFile, s.APIKeyFile)
		if err != nil {
			return nil, fmt.Errorf("--api-cert-file: cannot load the client certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{own}
	}
	if s.APICAFile != "" {
		var err error
		if config.RootCAs, err = reload.ReadCA("the CA of the engine", s.APICAFile); err != nil {
			return nil, fmt.Errorf("--api-ca-file: %w", err)
		}
	}
	return config, nil
}

// readToken reads the engine's token; it returns "" for an empty path.
func readToken(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	token, err := auth.ReadToken("--api-token-file", path)
	return string(token), err
}
