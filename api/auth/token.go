package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"slipway.io/slipway/reload"
)

// Token is a bearer token of an API.
type Token string

// NoToken is the Token of an API that requires none.
const NoToken Token = ""

// Matches reports whether presented equals the token, byte for byte; NoToken matches everything. It takes constant
// time.
func (t Token) Matches(presented string) bool {
	want, have := sha256.Sum256([]byte(t)), sha256.Sum256([]byte(presented))
	return t == NoToken || subtle.ConstantTimeCompare(want[:], have[:]) == 1
}

// tokenLength is the length of a generated token in characters, as in Kuscia.
const tokenLength = 32

// LoadToken reads the token of an API, which is the complete content of the file, or creates it. Of several servers
// that start concurrently with one file, the first creates it.
func LoadToken(api, path string) (Token, error) {
	made, err := makeToken(path)
	if err == nil {
		return made, nil
	}
	if !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("the token file of %s cannot be created: %w", api, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("the token of %s cannot be read: %w", api, err)
	}
	if len(text) == 0 {
		return "", fmt.Errorf(
			"the token file of %s, %s, is empty: write a token to it, or delete it to create a new one", api, path)
	}
	if strings.TrimSpace(string(text)) != string(text) {
		return "", fmt.Errorf("the token file of %s, %s, begins or ends with a blank or a new line, which no client "+
			"could send: "+
			"write the token alone", api, path)
	}
	return Token(text), nil
}

// ReadToken reads a token to present to another API. setting names the file in errors. A trailing new line is not part
// of the token.
func ReadToken(setting, path string) (Token, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", setting, err)
	}
	token := strings.TrimRight(string(text), "\r\n")
	if token == "" {
		return "", fmt.Errorf("%s: %s is empty: write a token to it, or leave out the setting", setting, path)
	}
	return Token(token), nil
}

// TokenFile is a token in a file that may change while the process runs.
type TokenFile struct{ files *reload.Files[Token] }

// NewTokenFile returns a token that load reads from the file at path. An error of the first load is a configuration
// error.
func NewTokenFile(path string, load func() (Token, error)) (*TokenFile, error) {
	files, err := reload.New(load, 0, path)
	return &TokenFile{files: files}, err
}

// Token returns the current token. If the file cannot be read, it returns an error, not the previous token: removing a
// token is meant to revoke it.
func (f *TokenFile) Token() (Token, error) {
	token, err := f.files.Get()
	if err != nil {
		return "", err
	}
	return token, nil
}

// makeToken writes a new token to a file that does not exist yet. The file appears with its complete content: no
// process reads a partial token.
func makeToken(path string) (Token, error) {
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
	return Token(token), nil
}

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
