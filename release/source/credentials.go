package source

import (
	"encoding/base64"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"slipway.io/slipway/release/failure"
)

// Keys of a Secret with the credentials of a source.
const (
	keyUsername = "username"
	keyPassword = "password"
	keyToken    = "token"
	keyQuery    = "query"
	keyHosts    = "hosts"
)

// Credentials are what a source asks for, and the hosts that may be told. They are sent to no other.
type Credentials struct {
	Username, Password string
	// Token is a bearer token, in place of a user name and password.
	Token string
	// Query is appended to the URL, for sources that ask for a signature or key there.
	Query string
	// Hosts are as in the Secret: `host` and `host:port` by https alone, `http://host` and `http://host:port` by plain http too.
	Hosts []string

	named []authority
}

// authority is a host that the Secret names. Port 0 is the scheme's own.
type authority struct {
	host  string
	port  uint16
	plain bool
}

// ParseCredentials reads a Secret's data; secret is its namespace and name, for errors. Keys that are not of a source's credentials are left
// alone: a Secret may serve others too.
func ParseCredentials(secret string, data map[string][]byte) (Credentials, error) {
	// Files that Secrets are made from tend to end in a line break, which belongs to no value.
	value := func(key string) string { return strings.TrimRight(string(data[key]), "\r\n") }
	credentials := Credentials{Username: value(keyUsername), Password: value(keyPassword), Token: value(keyToken), Query: value(keyQuery)}
	credentials.Query = strings.TrimLeft(credentials.Query, "?&")
	if problem := credentials.problem(data); problem != "" {
		return Credentials{}, failure.New(failure.Refused, "Secret %s: %s", secret, problem)
	}
	for _, text := range strings.FieldsFunc(value(keyHosts), func(r rune) bool { return r == ',' || unicode.IsSpace(r) }) {
		named, problem := parseNamed(text)
		if problem != "" {
			return Credentials{}, failure.New(failure.Refused, "Secret %s: %s: %s", secret, keyHosts, problem)
		}
		if !slices.Contains(credentials.named, named) {
			credentials.named, credentials.Hosts = append(credentials.named, named), append(credentials.Hosts, text)
		}
	}
	if len(credentials.named) == 0 {
		return Credentials{}, failure.New(failure.Refused, "Secret %s: the key %s is missing: list the hosts that may see the credentials", secret, keyHosts)
	}
	return credentials, nil
}

// problem names no value: they are secrets.
func (c Credentials) problem(data map[string][]byte) string {
	_, hasPassword := data[keyPassword]
	switch {
	case c.Username == "" && hasPassword, c.Username != "" && !hasPassword:
		return "the keys username and password belong together: set both"
	case c.Username != "" && c.Token != "":
		return "it has both a user name and a token: remove one of them"
	case c.Username == "" && c.Token == "" && c.Query == "":
		return "it has no credentials: set the keys username and password, or token, or query"
	case strings.Contains(c.Username, ":"):
		return "the user name contains a colon, which basic authentication does not allow"
	case strings.ContainsFunc(c.Username+c.Password, unicode.IsControl):
		return "the user name or password contains a control character: remove it"
	case strings.ContainsFunc(c.Token, notVisible):
		return "the token contains a blank or another character that no token has: remove it"
	case strings.ContainsFunc(c.Query, notVisible) || strings.Contains(c.Query, "#"):
		return "the query contains a character that a URL does not allow: escape it with %"
	}
	return ""
}

func notVisible(r rune) bool { return r <= ' ' || r > '~' }

func parseNamed(text string) (authority, string) {
	rest, plain := strings.CutPrefix(strings.ToLower(text), schemeHTTP+"://")
	rest, secure := strings.CutPrefix(rest, schemeHTTPS+"://")
	// An entry might be a URL with a password in it, so that none is quoted.
	const how = "an entry is not a host: write host, host:port or http://host[:port], separated by commas, blanks or lines"
	u, err := url.Parse(schemeHTTPS + "://" + rest)
	if err != nil || plain && secure || u.User != nil || u.Host != rest || u.Hostname() == "" {
		return authority{}, how
	}
	host, port, err := Authority(u)
	if err != nil {
		return authority{}, how
	}
	if u.Port() == "" {
		port = 0
	}
	return authority{host: host, port: port, plain: plain}, ""
}

// Named says whether the Secret names the host, port and scheme of a URL, so that credentials may be sent there.
func (c Credentials) Named(u *url.URL) bool {
	if u.Scheme != schemeHTTP && u.Scheme != schemeHTTPS {
		return false
	}
	host, port, err := Authority(u)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(c.named, func(named authority) bool {
		return named.host == host && (u.Scheme == schemeHTTPS || named.plain) && (named.port == port || named.port == 0 && port == defaultPort(u.Scheme))
	})
}

// Authorization is the header of that name for a request to a URL: "" if the Secret doesn't name its host, or has a query alone.
func (c Credentials) Authorization(u *url.URL) string {
	switch {
	case !c.Named(u):
		return ""
	case c.Token != "":
		return "Bearer " + c.Token
	case c.Username != "":
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(c.Username+":"+c.Password))
	}
	return ""
}

// String names the hosts and no secret, so that credentials can't be printed or logged by mistake.
func (c Credentials) String() string { return "credentials for " + strings.Join(c.Hosts, ", ") }

// GoString is String, for %#v.
func (c Credentials) GoString() string { return c.String() }

// MarshalText is String, for JSON and structured logs: credentials are never serialised.
func (c Credentials) MarshalText() ([]byte, error) { return []byte(c.String()), nil }
