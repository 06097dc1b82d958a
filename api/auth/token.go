package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"slipway.io/slipway/reload"
)

// Token is a secret that clients show.
type Token string

// NoToken is that of an API that asks for none.
const NoToken Token = ""

// Matches says whether what was shown is the token, byte for byte; with NoToken, everything is. It takes the same time for every answer.
func (t Token) Matches(shown string) bool {
	want, have := sha256.Sum256([]byte(t)), sha256.Sum256([]byte(shown))
	return t == NoToken || subtle.ConstantTimeCompare(want[:], have[:]) == 1
}

// tokenLength is how many characters a token has that is made here, as Kuscia's have.
const tokenLength = 32

// LoadToken reads the token of an API, all bytes of the file, or makes one. Several servers may start at once with one file: the first
// makes it.
func LoadToken(api, path string) (Token, error) {
	made, err := makeToken(path)
	if err == nil {
		return made, nil
	}
	if !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("the token file of %s cannot be made: %w", api, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("the token of %s cannot be read: %w", api, err)
	}
	if len(text) == 0 {
		return "", fmt.Errorf("the token file of %s, %s, is empty: write a token to it, or delete it to have one made", api, path)
	}
	if strings.TrimSpace(string(text)) != string(text) {
		return "", fmt.Errorf("the token file of %s, %s, begins or ends with a blank or a new line, which no client could send: "+
			"write the token alone", api, path)
	}
	return Token(text), nil
}

// ReadToken reads a token that somebody else asks for. setting names the file in errors. A new line at its end is no part of the token.
func ReadToken(setting, path string) (Token, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", setting, err)
	}
	token := strings.TrimRight(string(text), "\r\n")
	if token == "" {
		return "", fmt.Errorf("%s: %s is empty: give a file with a token in it, or none", setting, path)
	}
	return Token(token), nil
}

// TokenFile is a token whose file may change while the process runs.
type TokenFile struct{ files *reload.Files[Token] }

// NewTokenFile follows a file that load reads. An error of the first load is one of the settings.
func NewTokenFile(path string, load func() (Token, error)) (*TokenFile, error) {
	files, err := reload.New(load, 0, path)
	return &TokenFile{files: files}, err
}

// Token is what the file contains now. A file that can't be read has no token, not the last one: who takes a token away means it.
func (f *TokenFile) Token() (Token, error) {
	token, err := f.files.Get()
	if err != nil {
		return "", err
	}
	return token, nil
}

// makeToken writes a new token to a file that does not exist yet. It appears under its name with the token in it: nobody reads half of one.
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
