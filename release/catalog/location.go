package catalog

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode"

	"slipway.io/slipway/release/strictyaml"
)

// maxURLLength is how many characters a URL has at most.
const maxURLLength = 2048

// ValidURL says what is wrong with an absolute URL of one of these schemes. A password in it is refused: plans, records and reports are read
// by many.
func ValidURL(text string, schemes ...string) error {
	parsed, err := url.Parse(text)
	switch {
	case len(text) > maxURLLength:
		return fmt.Errorf("is too long: a URL has at most %d characters", maxURLLength)
	case strings.ContainsFunc(text, unicode.IsSpace):
		return errors.New("is not a URL: it has a blank in it") // not repeated here, for it may hold a password
	case err != nil:
		var cause *url.Error
		if errors.As(err, &cause) {
			err = cause.Err // without the text, for the same reason
		}
		return fmt.Errorf("is not a URL: %w", err)
	case !hasScheme(parsed, schemes) || parsed.Hostname() == "":
		return fmt.Errorf("%s is not an absolute URL: it must begin with %s and name a host", strictyaml.Quote(parsed.Redacted()), schemeList(schemes))
	}
	if _, hasPassword := parsed.User.Password(); hasPassword {
		return errors.New("carries a password, which everybody who reads the plan or its report would see: leave it out and name a Secret in the catalogue")
	}
	return nil
}

func hasScheme(u *url.URL, schemes []string) bool {
	for _, scheme := range schemes {
		if u.Scheme == scheme { // url.Parse has made it lower-case
			return true
		}
	}
	return false
}

func schemeList(schemes []string) string {
	prefixes := make([]string, len(schemes))
	for i, scheme := range schemes {
		prefixes[i] = scheme + "://"
	}
	return strings.Join(prefixes, " or ")
}
