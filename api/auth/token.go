package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/reload"
)

// Lock requires the token of one API. The zero Lock requires none.
type Lock struct {
	// API names the API in errors, and Label in the metric of failures.
	API, Label string
	// Source is where clients find the token, Header how they send it.
	Source, Header string
	// Token is the required token; nil: none is required.
	Token *TokenFile
	// Failures counts requests without the token.
	Failures *Failures
}

// BearerHeader is how clients send a bearer token.
const BearerHeader = "header `Authorization: Bearer TOKEN`"

// Closed reports whether a token is required.
func (l Lock) Closed() bool { return l.Token != nil }

// Authenticate refuses a request of a client, by its address, that presents the token in none of the places where it
// may. An empty text is an empty place.
func (l Lock) Authenticate(client string, presented ...string) error {
	if !l.Closed() {
		return nil
	}
	token, err := l.Token.Token()
	if err != nil {
		l.Failures.unreadable(l.API, err)
		return problem.Unreachable.Because("%s cannot read its token: see its log", l.API)
	}
	presented = slices.DeleteFunc(presented, func(text string) bool { return text == "" })
	switch {
	case slices.ContainsFunc(presented, token.matches):
		return nil
	case len(presented) == 0:
		l.Failures.add(l.Label, missing, client)
		return problem.Unauthenticated.Because("%s requires a token: send the %s with what %s contains", l.API,
			l.Header, l.Source)
	case l.Failures.add(l.Label, wrong, client):
		return problem.TooManyFailures.Because("the token is wrong, and more than %d requests from this address had a "+
			"wrong one within a minute: send what %s contains", maxFailures, l.Source)
	}
	return problem.Unauthenticated.Because("the token is wrong: send what %s contains", l.Source)
}

// Token is a bearer token of an API.
type Token string

// matches reports whether presented equals the token, byte for byte. It takes constant time.
func (t Token) matches(presented string) bool {
	want, have := sha256.Sum256([]byte(t)), sha256.Sum256([]byte(presented))
	return subtle.ConstantTimeCompare(want[:], have[:]) == 1
}

// tokenLength is the length of a generated token, as in Kuscia, and the minimum of others, in characters: a shorter
// one could be guessed.
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
			"could send: write the token alone", api, path)
	}
	if len(text) < tokenLength {
		return "", fmt.Errorf("the token file of %s, %s, holds a token of %d characters, which could be guessed: "+
			"write one of at least %d characters, for example from `openssl rand -hex 32`, or delete the file to "+
			"create a new one", api, path, len(text), tokenLength)
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

// OpenToken returns the token of an API in a file, as LoadToken does, which is read again when the file changes.
func OpenToken(api, path string) (*TokenFile, error) {
	return NewTokenFile(path, func() (Token, error) { return LoadToken(api, path) })
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
