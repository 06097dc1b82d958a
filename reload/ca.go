package reload

import (
	"crypto/x509"
	"fmt"
	"os"
)

// ReadCA reads CA certificates in PEM form. what describes the file in errors.
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
