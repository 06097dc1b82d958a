package kuscia

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// Protocol is how Kuscia's API is guarded.
type Protocol string

// The protocols.
const (
	// NOTLS: neither encrypted nor with a token; for this machine alone.
	NOTLS Protocol = "NOTLS"
	// TLS: encrypted, with a token.
	TLS Protocol = "TLS"
	// MTLS: as TLS, and clients show a certificate too.
	MTLS Protocol = "MTLS"
)

// Security is how Kuscia's API is guarded, with all that it takes.
type Security struct {
	// TLS is nil where nothing is encrypted.
	TLS *tls.Config
	// Token is what every request has to show; "": none.
	Token string
}

// Files are where the parts of a Security are kept.
type Files struct {
	// Certificate and Key are the listener's own, CA is what clients' certificates are checked against, Token holds the token.
	Certificate, Key, CA, Token string
}

// LoadSecurity reads what a protocol takes. A token file that does not exist is made.
func LoadSecurity(protocol Protocol, files Files) (Security, error) {
	if protocol == NOTLS {
		return Security{}, nil
	}
	certificate, err := tls.LoadX509KeyPair(files.Certificate, files.Key)
	if err != nil {
		return Security{}, fmt.Errorf("the certificate of Kuscia's API cannot be used: %w", err)
	}
	s := Security{TLS: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}}}
	if protocol == MTLS {
		if s.TLS.ClientCAs, err = readCA(files.CA); err != nil {
			return Security{}, err
		}
		s.TLS.ClientAuth = tls.RequireAndVerifyClientCert
	}
	s.Token, err = readToken(files.Token)
	return s, err
}

func readCA(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the CA of Kuscia's clients cannot be read: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("the CA of Kuscia's clients, %s, holds no certificate in PEM form", path)
	}
	return pool, nil
}

// tokenLength is how many characters a token has that is made here, as Kuscia's have.
const tokenLength = 32

// readToken reads the token, all bytes of the file, or makes one. Several servers may start at once with one file: the first makes it.
func readToken(path string) (string, error) {
	made, err := makeToken(path)
	if err == nil {
		return made, nil
	}
	if !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("the token file of Kuscia's API cannot be made: %w", err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("the token of Kuscia's API cannot be read: %w", err)
	}
	if len(text) == 0 {
		return "", fmt.Errorf("the token file of Kuscia's API, %s, is empty: write a token to it, or delete it to have one made", path)
	}
	if strings.TrimSpace(string(text)) != string(text) {
		return "", fmt.Errorf("the token file of Kuscia's API, %s, begins or ends with a blank or a new line, which no client could send: "+
			"write the token alone", path)
	}
	return string(text), nil
}

// makeToken writes a new token to a file that does not exist yet. It appears under its name with the token in it: nobody reads half of one.
func makeToken(path string) (string, error) {
	if _, err := os.Lstat(path); err == nil {
		return "", fs.ErrExist
	}
	token := (rand.Text() + rand.Text())[:tokenLength]
	partial := path + "." + rand.Text() + ".partial"
	if err := os.WriteFile(partial, []byte(token), 0o600); err != nil {
		return "", err
	}
	defer os.Remove(partial)
	if err := os.Link(partial, path); err != nil {
		return "", err
	}
	return token, nil
}
