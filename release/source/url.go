package source

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/net/idna"

	"slipway.io/slipway/release/failure"
)

const (
	schemeHTTP  = "http"
	schemeHTTPS = "https"
	// The maximum length of a DNS name and of a label.
	longestName = 253
)

// refuse returns the failure of an input that is refused.
func refuse[T any](format string, args ...any) (none T, err error) {
	return none, failure.New(failure.Refused, format, args...)
}

// ParseURL parses the URL of a source: http or https, with a host and without user info, which belongs in a Secret. Its
// errors are of kind Refused and show the URL redacted.
func ParseURL(rawURL string) (*url.URL, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		// The parser's error quotes what it could not read, secrets included.
		return nil, failure.New(failure.Refused, "the address is not a valid URL: write https://host/path")
	}
	if err := CheckURL(u); err != nil {
		return nil, failure.New(failure.Refused, "%s: %v", Redact(rawURL), err)
	}
	return u, nil
}

// CheckURL returns why a URL, of a source or of a redirect, cannot be fetched, regardless of what is allowed. The error
// does not show the URL.
func CheckURL(u *url.URL) error {
	switch {
	case u.Scheme != schemeHTTP && u.Scheme != schemeHTTPS:
		return errors.New("only http and https are supported")
	case u.Opaque != "" || u.Hostname() == "":
		return errors.New("the URL names no host: write https://host/path")
	case u.User != nil:
		return errors.New("the URL contains a user name or password: put them into a Secret and name it as the " +
			"credentials")
	}
	_, _, err := Authority(u)
	return err
}

// Authority returns the host of an http or https URL in canonical spelling, and its port, by default the scheme's.
func Authority(u *url.URL) (string, uint16, error) {
	host, _, err := canonicalHost(u.Hostname())
	if err != nil {
		return "", 0, err
	}
	if u.Port() == "" {
		return host, defaultPort(u.Scheme), nil
	}
	port, err := parsePort(u.Port())
	return host, port, err
}

func defaultPort(scheme string) uint16 {
	if scheme == schemeHTTP {
		return 80
	}
	return 443
}

func parsePort(text string) (uint16, error) {
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return 0, errors.New("the port is not a number from 1 to 65535")
	}
	return uint16(port), nil
}

// canonicalHost returns a host in the form in which hosts are compared: names in lower case and in ASCII, without the
// final dot; addresses in their shortest form, and also as netip.Addr. It rejects notations of an address that only
// some resolvers understand (octal, hexadecimal, one number), so that nothing interprets them differently from this
// check.
func canonicalHost(host string) (string, netip.Addr, error) {
	if strings.Contains(host, "%") {
		return "", netip.Addr{}, errors.New("IPv6 zones are not supported in hosts")
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().String(), ip, nil
	}
	name := strings.ToLower(host)
	if strings.ContainsFunc(host, func(r rune) bool { return r > unicode.MaxASCII }) {
		var err error
		if name, err = idna.Lookup.ToASCII(host); err != nil {
			return "", netip.Addr{}, fmt.Errorf("host %q is not a valid internationalised name", host)
		}
	}
	name = strings.TrimSuffix(name, ".")
	if ip, err := netip.ParseAddr(name); err == nil {
		return ip.Unmap().String(), ip, nil
	}
	return name, netip.Addr{}, checkName(host, name)
}

var (
	// hostName matches names of hosts. Underscores are not in the standard, but in use.
	hostName = regexp.MustCompile(`^[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*$`)
	// numberLast matches a name whose last label makes resolvers treat it as an address; no top-level domain is a
	// number.
	numberLast = regexp.MustCompile(`(^|\.)([0-9]+|0x[0-9a-f]*)$`)
)

func checkName(host, name string) error {
	switch {
	case name == "" || len(name) > longestName:
		return fmt.Errorf("host %q is empty or too long", host)
	case !hostName.MatchString(name):
		return fmt.Errorf("host %q is not a valid name", host)
	case numberLast.MatchString(name):
		return fmt.Errorf("host %q is an address in a notation that is not supported: write four decimal numbers", host)
	}
	return nil
}

// Unreadable replaces text that is not a URL and might contain a secret anywhere.
const Unreadable = "(unreadable URL)"

// Redact returns a URL that may be logged, reported and recorded: without user info, and with `?…` instead of a query
// or fragment, which may be signatures. Text that is not a URL with a host becomes Unreadable.
func Redact(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme == "" || u.Opaque != "" || u.Hostname() == "" || !strings.HasPrefix(u.Path+"/", "/") {
		return Unreadable
	}
	shown := u.Scheme + "://" + u.Host + u.EscapedPath()
	if strings.ContainsFunc(shown, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return Unreadable
	}
	if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		shown += "?…"
	}
	return shown
}

// bucketName matches the bucket names that Amazon S3 accepts
// (https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html).
var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)

// ParseBucket parses the address of a bucket or of a part of one: s3://name or s3://name/prefix. The prefix is empty or
// ends with a slash.
func ParseBucket(text string) (name, prefix string, err error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "s3" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return "", "", fmt.Errorf("%q is not a bucket: give s3://name or s3://name/prefix", text)
	}
	if !bucketName.MatchString(u.Host) {
		return "", "", fmt.Errorf("%q is not a bucket name: use 3 to 63 lower-case letters, digits, dots and hyphens",
			u.Host)
	}
	if prefix = strings.Trim(u.Path, "/"); prefix == "" {
		return u.Host, "", nil
	}
	if path.Clean("/"+prefix) != "/"+prefix {
		return "", "", fmt.Errorf("%q is not a prefix in a bucket: leave out empty parts and dots", u.Path)
	}
	return u.Host, prefix + "/", nil
}

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
		return refuse[Repository]("the address of the Git repository has a blank or a control character in it: remove it")
	}
	scheme, _, isURL := strings.Cut(address, "://")
	switch {
	case !isURL:
		return parseShort(address)
	case strings.EqualFold(scheme, schemeSSH):
		return parseSSH(address)
	case strings.EqualFold(scheme, "git"):
		return refuse[Repository]("%s: git:// is neither encrypted nor authenticated: use https or ssh",
			RedactRepository(address))
	}
	at, err := ParseURL(address)
	if err != nil {
		return Repository{}, err
	}
	if at.RawQuery != "" || at.ForceQuery || at.Fragment != "" {
		return refuse[Repository]("%s: the address of a Git repository has no query: put credentials into the Secret that "+
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
		return refuse[Repository]("the address of the Git repository has no path: write user@host:path")
	}
	return newSSH(login, host, portSSH, path)
}

func parseSSH(address string) (Repository, error) {
	u, err := url.Parse(address)
	if err != nil {
		return refuse[Repository]("the address of the Git repository is not a valid URL: write ssh://user@host/path")
	}
	login, port := u.User.Username(), uint16(portSSH)
	if _, secret := u.User.Password(); secret {
		return refuse[Repository]("%s: the address must not contain a password: put the key into the Secret that "+
			"build.credentials names", RedactRepository(address))
	}
	if u.Port() != "" {
		if port, err = parsePort(u.Port()); err != nil {
			return refuse[Repository]("%s: %v", RedactRepository(address), err)
		}
	}
	if login == "" {
		login = loginSSH
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return refuse[Repository]("%s: the address of a Git repository has no query", RedactRepository(address))
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
		return refuse[Repository]("the address of the Git repository: %v", err)
	case strings.Trim(path, "/") == "" || strings.HasPrefix(path, "-"):
		return refuse[Repository]("the address of the Git repository on %s has no path to a repository", name)
	case login == "" || strings.HasPrefix(login, "-"):
		return refuse[Repository]("the address of the Git repository on %s has no user", name)
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
