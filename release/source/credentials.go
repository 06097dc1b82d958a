package source

import (
	"encoding/base64"
	"net/url"
	"slices"
	"strings"
	"unicode"
)

// Keys of a Secret with the credentials of a source.
const (
	keyUsername = "username"
	keyPassword = "password"
	keyToken    = "token"
	keyQuery    = "query"
	keyHosts    = "hosts"
)

// Credentials are what a source requires, and the hosts to which they may be sent. They are sent to no other host.
type Credentials struct {
	Username, Password string
	// Token is a bearer token, instead of a user name and password.
	Token string
	// Query is appended to the URL, for sources that expect a signature or key there.
	Query string
	// Hosts are as in the Secret: `host` and `host:port` allow https only, `http://host` and `http://host:port` plain
	// http too.
	Hosts []string

	authorities []authority
}

// authority is a host that the Secret lists. Port 0 is the scheme's default.
type authority struct {
	host  string
	port  uint16
	plain bool
}

// ParseCredentials reads a Secret's data; secret is its namespace and name, for errors. Unknown keys are ignored: a
// Secret may serve other purposes too.
func ParseCredentials(secret string, data map[string][]byte) (Credentials, error) {
	// Files from which Secrets are made tend to end in a line break, which is not part of the value.
	value := func(key string) string { return strings.TrimRight(string(data[key]), "\r\n") }
	credentials := Credentials{Username: value(keyUsername), Password: value(keyPassword), Token: value(keyToken),
		Query: value(keyQuery)}
	credentials.Query = strings.TrimLeft(credentials.Query, "?&")
	if problem := credentials.problem(data); problem != "" {
		return refuse[Credentials]("Secret %s: %s", secret, problem)
	}
	for _, text := range strings.FieldsFunc(value(keyHosts), func(r rune) bool {
		return r == ',' || unicode.IsSpace(r)
	}) {
		named, problem := parseAuthority(text)
		if problem != "" {
			return refuse[Credentials]("Secret %s: %s: %s", secret, keyHosts, problem)
		}
		if !slices.Contains(credentials.authorities, named) {
			credentials.authorities, credentials.Hosts = append(credentials.authorities, named),
				append(credentials.Hosts, text)
		}
	}
	if len(credentials.authorities) == 0 {
		return refuse[Credentials]("Secret %s: the key %s is missing: list the hosts that may see the credentials", secret,
			keyHosts)
	}
	return credentials, nil
}

// problem returns what is wrong with the credentials. It quotes no value: they are secrets.
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

func parseAuthority(text string) (authority, string) {
	rest, plain := strings.CutPrefix(strings.ToLower(text), schemeHTTP+"://")
	rest, secure := strings.CutPrefix(rest, schemeHTTPS+"://")
	// An entry might be a URL with a password, so none is quoted.
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

// Allows reports whether the Secret lists the host, port and scheme of a URL, so that the credentials may be sent
// there.
func (c Credentials) Allows(u *url.URL) bool {
	if u.Scheme != schemeHTTP && u.Scheme != schemeHTTPS {
		return false
	}
	host, port, err := Authority(u)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(c.authorities, func(named authority) bool {
		return named.host == host && (u.Scheme == schemeHTTPS || named.plain) &&
			(named.port == port || named.port == 0 && port == defaultPort(u.Scheme))
	})
}

// Authorization returns the Authorization header for a request to a URL: "" if the Secret does not list its host, or
// has only a query.
func (c Credentials) Authorization(u *url.URL) string {
	switch {
	case !c.Allows(u):
		return ""
	case c.Token != "":
		return "Bearer " + c.Token
	case c.Username != "":
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(c.Username+":"+c.Password))
	}
	return ""
}

// String returns the hosts and no secret, so that credentials cannot be printed or logged by mistake.
func (c Credentials) String() string { return "credentials for " + strings.Join(c.Hosts, ", ") }

// GoString returns String, for %#v.
func (c Credentials) GoString() string { return c.String() }

// MarshalText returns String, for JSON and structured logs: credentials are never serialised.
func (c Credentials) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// The keys of a Secret that opens Git repositories by ssh: the first is the one of Secrets of type
// kubernetes.io/ssh-auth.
const (
	keyPrivateKey = "ssh-privatekey"
	keyKnownHosts = "known_hosts"
)

// SSHKey opens Git repositories by ssh, only on the hosts in its known hosts.
type SSHKey struct {
	PrivateKey []byte
	// KnownHosts are the lines of a known_hosts file.
	KnownHosts []byte
}

// ParseSSHKey reads a Secret's data; secret is its namespace and name, for errors. Known hosts are required to
// authenticate the server.
func ParseSSHKey(secret string, data map[string][]byte) (SSHKey, error) {
	key := SSHKey{PrivateKey: data[keyPrivateKey], KnownHosts: data[keyKnownHosts]}
	switch {
	case len(key.PrivateKey) == 0:
		return refuse[SSHKey]("Secret %s: the key %s is missing: a repository by ssh needs a private key", secret,
			keyPrivateKey)
	case len(key.KnownHosts) == 0:
		return refuse[SSHKey]("Secret %s: the key %s is missing: put the host's public keys there, as "+
			"`ssh-keyscan` prints them, after you have verified them", secret, keyKnownHosts)
	}
	return key, nil
}

// String returns no secret, so that a key cannot be printed or logged by mistake.
func (SSHKey) String() string { return "an ssh key" }

// GoString returns String, for %#v.
func (k SSHKey) GoString() string { return k.String() }

// MarshalText returns String, for JSON and structured logs: keys are never serialised.
func (k SSHKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }
