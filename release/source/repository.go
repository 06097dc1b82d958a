package source

import (
	"net/url"
	"strconv"
	"strings"
	"unicode"

	"slipway.io/slipway/release/failure"
)

const (
	schemeSSH = "ssh"
	portSSH   = 22
	// loginSSH is the default user for ssh: Git hosts expect it.
	loginSSH = "git"
)

// Repository is the address of a Git repository.
type Repository struct {
	// URL is the address for http or https; "" for ssh.
	URL string
	// Login, Host, Port and Path are for ssh; Path is sent to the server unchanged.
	Login, Host, Path string
	Port              uint16
}

// ParseRepository parses the address of a Git repository: http://, https://, ssh://, or user@host:path, which means ssh
// too. It must have no password and no query. The errors are of kind Refused.
func ParseRepository(address string) (Repository, error) {
	if strings.ContainsFunc(address, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }) {
		return Repository{}, failure.New(failure.Refused,
			"the address of the Git repository has a blank or a control character in it: remove it")
	}
	scheme, _, isURL := strings.Cut(address, "://")
	switch {
	case !isURL:
		return parseShort(address)
	case strings.EqualFold(scheme, schemeSSH):
		return parseSSH(address)
	case strings.EqualFold(scheme, "git"):
		return Repository{}, failure.New(failure.Refused,
			"%s: git:// is neither encrypted nor authenticated: use https or ssh", RedactRepository(address))
	}
	at, err := ParseURL(address)
	if err != nil {
		return Repository{}, err
	}
	if at.RawQuery != "" || at.ForceQuery || at.Fragment != "" {
		return Repository{}, failure.New(failure.Refused,
			"%s: the address of a Git repository has no query: put credentials into the Secret that "+
				"build.credentials names", Redact(address))
	}
	return Repository{URL: strings.TrimSuffix(address, "/")}, nil
}

// parseShort parses user@host:path. A path that does not begin with a slash is relative to the user's home.
func parseShort(address string) (Repository, error) {
	where, path, ok := strings.Cut(address, ":")
	login, host, named := strings.Cut(where, "@")
	if !named {
		login, host = loginSSH, where
	}
	if !ok || path == "" {
		return Repository{}, failure.New(failure.Refused,
			"the address of the Git repository has no path: write user@host:path")
	}
	return newSSH(login, host, portSSH, path)
}

func parseSSH(address string) (Repository, error) {
	u, err := url.Parse(address)
	if err != nil {
		return Repository{}, failure.New(failure.Refused,
			"the address of the Git repository is not a valid URL: write ssh://user@host/path")
	}
	login, port := u.User.Username(), uint16(portSSH)
	if _, secret := u.User.Password(); secret {
		return Repository{}, failure.New(failure.Refused,
			"%s: the address must not contain a password: put the key into the Secret that build.credentials names",
			RedactRepository(address))
	}
	if u.Port() != "" {
		if port, err = parsePort(u.Port()); err != nil {
			return Repository{}, failure.New(failure.Refused, "%s: %v", RedactRepository(address), err)
		}
	}
	if login == "" {
		login = loginSSH
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return Repository{}, failure.New(failure.Refused, "%s: the address of a Git repository has no query",
			RedactRepository(address))
	}
	path := u.Path
	if strings.HasPrefix(path, "/~") { // the home of a user, as Git reads it
		path = path[1:]
	}
	return newSSH(login, u.Hostname(), port, path)
}

func newSSH(login, host string, port uint16, path string) (Repository, error) {
	name, _, err := canonicalHost(host)
	switch {
	case err != nil:
		return Repository{}, failure.New(failure.Refused, "the address of the Git repository: %v", err)
	case strings.Trim(path, "/") == "" || strings.HasPrefix(path, "-"):
		return Repository{}, failure.New(failure.Refused,
			"the address of the Git repository on %s has no path to a repository", name)
	case login == "" || strings.HasPrefix(login, "-"):
		return Repository{}, failure.New(failure.Refused, "the address of the Git repository on %s has no user", name)
	}
	return Repository{Login: login, Host: name, Port: port, Path: path}, nil
}

// SSH reports whether the repository is reached by ssh.
func (r Repository) SSH() bool { return r.URL == "" }

// Authority returns the host and port of the repository.
func (r Repository) Authority() (host string, port uint16, err error) {
	if r.SSH() {
		return r.Host, r.Port, nil
	}
	u, err := ParseURL(r.URL)
	if err != nil {
		return "", 0, err
	}
	return Authority(u)
}

// RedactRepository returns the address of a Git repository without user, password and query.
func RedactRepository(address string) string {
	if strings.Contains(address, "://") {
		return Redact(address)
	}
	where, path, ok := strings.Cut(address, ":")
	if !ok || strings.ContainsFunc(address, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return Unreadable
	}
	return where[strings.LastIndexByte(where, '@')+1:] + ":" + path
}

// Address returns host and port for dialling.
func (r Repository) Address() string {
	host := r.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(int(r.Port))
}
