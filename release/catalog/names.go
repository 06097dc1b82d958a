package catalog

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.io/slipway/release/strictyaml"
)

// maxIDLength is the maximum length of an ID or a label in characters.
const maxIDLength = 63

var (
	// idPattern is strict at the edges: an ID is part of paths and the name of an object, where "..", and "." or "-" at
	// either end, are illegal.
	idPattern = regexp.MustCompile(
		`^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*$`)
	labelPattern = regexp.MustCompile(`^[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?$`)
)

// ValidID returns what is wrong with the ID of a service or the name of a plan.
func ValidID(id string) error {
	return validWord(id, "an ID", `letters, digits, "-" and "."`,
		"begin and end each part between dots with a letter or digit", idPattern)
}

// ValidLabel returns what is wrong with a label of a workload.
func ValidLabel(label string) error {
	return validWord(label, "a label", `letters, digits, "-", "_" and "."`, "begin and end with a letter or digit",
		labelPattern)
}

// validWord checks a word against a pattern. what is its name in errors; madeOf and edges describe the pattern.
func validWord(word, what, madeOf, edges string, pattern *regexp.Regexp) error {
	_, noun, _ := strings.Cut(what, " ")
	switch {
	case word == "":
		return fmt.Errorf("is empty: %s is made of %s", what, madeOf)
	case len(word) > maxIDLength:
		return fmt.Errorf("%s is too long: %s has at most %d characters", strictyaml.Quote(word), what, maxIDLength)
	case !pattern.MatchString(word):
		return fmt.Errorf("%s is not a legal %s: use %s, and %s", strictyaml.Quote(word), noun, madeOf, edges)
	}
	return nil
}

// ValidParty returns what is wrong with the name of a party: it is the name of a Party object or of a namespace, with
// at most 63 characters.
func ValidParty(name string) error {
	if len(name) > maxIDLength {
		return fmt.Errorf("is too long: a party's name has at most %d characters", maxIDLength)
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return fmt.Errorf("%s is not a legal name: %s", strictyaml.Quote(name), strings.Join(problems, "; "))
	}
	return nil
}

// maxURLLength is the maximum length of a URL in characters.
const maxURLLength = 2048

// ValidURL returns what is wrong with an absolute URL. It rejects a password, and in http any user: many people read
// plans, records and reports.
func ValidURL(text string, schemes ...string) error {
	parsed, err := url.Parse(text)
	switch {
	case len(text) > maxURLLength:
		return fmt.Errorf("is too long: a URL has at most %d characters", maxURLLength)
	case strings.ContainsFunc(text, unicode.IsSpace):
		return errors.New("is not a URL: it has a blank in it") // not quoted here, because it may contain a password
	case err != nil:
		var cause *url.Error
		if errors.As(err, &cause) {
			err = cause.Err // without the text, for the same reason
		}
		return fmt.Errorf("is not a URL: %w", err)
	case !slices.Contains(schemes, parsed.Scheme) || parsed.Hostname() == "": // url.Parse has lower-cased the scheme
		return fmt.Errorf("%s is not an absolute URL: it must begin with %s:// and name a host",
			strictyaml.Quote(parsed.Redacted()), strings.Join(schemes, ":// or "))
	}
	if _, hasPassword := parsed.User.Password(); hasPassword || parsed.User != nil &&
		strings.HasPrefix(parsed.Scheme, "http") {
		return errors.New("contains a user or a password, which every reader of the plan or its report would see: " +
			"leave it out and name a Secret in the catalogue")
	}
	return nil
}
