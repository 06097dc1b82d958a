// Package source decides from where packages and code may be fetched, and with what: allowed addresses, credentials and
// limits. It makes no HTTP requests; activities/source applies its decisions.
package source

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/phrase"
)

// AllowSetting is the environment variable that carries an Allow; errors name it.
const AllowSetting = "SLIPWAY_SOURCE_ALLOW"

// allowHint is the part of an error that explains how to allow a source.
const allowHint = "allow it with --source-allow (" + AllowSetting + ") of the party's worker"

// EntryPublic is the entry that allows every public address.
const EntryPublic = "public"

// Allow is the complete list of sources that may be fetched from. The zero value allows nothing.
type Allow struct{ entries []entry }

// entry is public, a network, or a name. Port 0 is any port.
type entry struct {
	public  bool
	network netip.Prefix
	// name is a host. If subdomains is true, it allows the names under it instead, excluding the name itself.
	name       string
	subdomains bool
	port       uint16
}

// ParseAllow parses entries: `public`, a host name, `*.example.com`, an IP address or a network, each with or without a
// port. No entry at all means `public`. Blank entries are skipped.
func ParseAllow(entries []string) (Allow, error) {
	var allow Allow
	for _, text := range entries {
		if strings.TrimSpace(text) == "" {
			continue
		}
		parsed, err := parseEntry(strings.TrimSpace(text))
		if err != nil {
			return refuse[Allow]("entry %q of %s: %v", text, AllowSetting, err)
		}
		if !slices.Contains(allow.entries, parsed) {
			allow.entries = append(allow.entries, parsed)
		}
	}
	if len(allow.entries) == 0 {
		allow.entries = []entry{{public: true}}
	}
	return allow, nil
}

func parseEntry(text string) (entry, error) {
	if strings.Contains(text, "://") {
		return entry{}, errors.New("this is a URL: write the host, with a port or without")
	}
	host, portText, err := splitPort(text)
	if err != nil {
		return entry{}, err
	}
	parsed := entry{}
	if portText != "" {
		if parsed.port, err = parsePort(portText); err != nil {
			return entry{}, err
		}
	}
	if strings.EqualFold(host, EntryPublic) {
		parsed.public = true
		return parsed, nil
	}
	if strings.Contains(host, "/") {
		parsed.network, err = parseNetwork(host)
		return parsed, err
	}
	return parsed.withHost(host)
}

// splitPort splits the port off an entry; "" if it has none. An IPv6 address or network with a port is written in
// brackets.
func splitPort(text string) (host, port string, err error) {
	if inside, bracketed := strings.CutPrefix(text, "["); bracketed {
		host, after, closed := strings.Cut(inside, "]")
		port, hasPort := strings.CutPrefix(after, ":")
		if !closed || after != "" && (!hasPort || port == "") || !strings.Contains(host, ":") {
			return "", "", errors.New("write an IPv6 address as [::1] or [::1]:80, and a network as [fd00::/8]:80")
		}
		return host, port, nil
	}
	if strings.Count(text, ":") > 1 {
		return text, "", nil
	}
	host, port, hasPort := strings.Cut(text, ":")
	if hasPort && port == "" {
		return "", "", errors.New("the port is missing after the colon")
	}
	return host, port, nil
}

func parseNetwork(text string) (netip.Prefix, error) {
	network, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return netip.Prefix{}, errors.New("this is not a network: write it as 10.0.0.0/8, 10.0.0.0/8:443, fd00::/8 " +
			"or [fd00::/8]:443")
	case network.Masked() != network:
		return netip.Prefix{}, fmt.Errorf("the address has bits beyond the prefix length: write %s", network.Masked())
	}
	return network, checkCarried(network)
}

// checkCarried rejects networks that would never match because their addresses are checked as the IPv4 addresses that
// they carry.
func checkCarried(network netip.Prefix) error {
	for _, form := range []netip.Prefix{mapped, nat64, sixToIV} {
		if form.Bits() <= network.Bits() && form.Overlaps(network) {
			return fmt.Errorf("addresses of %s are checked as the IPv4 address that they carry: write that", form)
		}
	}
	return nil
}

func (e entry) withHost(host string) (entry, error) {
	host, e.subdomains = strings.CutPrefix(host, "*.")
	name, ip, err := canonicalHost(host)
	switch {
	case err != nil:
		return entry{}, err
	case ip.IsValid() && e.subdomains:
		return entry{}, errors.New("an address has no names under it: write a network, as in 10.0.0.0/8")
	case ip.IsValid():
		e.network = netip.PrefixFrom(ip, ip.BitLen())
		return e, checkCarried(e.network)
	case name == "localhost" || strings.HasSuffix(name, ".localhost"): // this machine, regardless of DNS (RFC 6761)
		return entry{}, errors.New("a name never allows loopback addresses: write 127.0.0.1 or [::1], and the port")
	}
	e.name = name
	return e, nil
}

func (e entry) String() string {
	host := e.name
	switch {
	case e.public:
		host = EntryPublic
	case e.network.IsValid() && e.network.IsSingleIP():
		host = e.network.Addr().String()
	case e.network.IsValid():
		host = e.network.String()
	case e.subdomains:
		host = "*." + e.name
	}
	if strings.Contains(host, ":") && (e.port != 0 || e.network.IsSingleIP()) {
		host = "[" + host + "]"
	}
	if e.port == 0 {
		return host
	}
	return host + ":" + strconv.Itoa(int(e.port))
}

func (e entry) hasPort(port uint16) bool { return e.port == 0 || e.port == port }

func (e entry) hasName(name string) bool {
	if e.subdomains {
		return strings.HasSuffix(name, "."+e.name)
	}
	return e.name != "" && e.name == name
}

// Entries returns the entries in canonical spelling, each once, in the given order.
func (a Allow) Entries() []string {
	return phrase.Each(a.entries, entry.String)
}

// CheckHost is a quick check before a name is resolved: it rejects a host that no entry can allow, whatever it resolves
// to. Only CheckAddress decides whether a connection is allowed.
func (a Allow) CheckHost(host string, port uint16) error {
	name, ip, err := canonicalHost(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	if err != nil {
		return failure.New(failure.Refused, "%v", err)
	}
	if ip.IsValid() {
		return a.CheckAddress(host, netip.AddrPortFrom(ip, port))
	}
	for _, entry := range a.entries {
		if entry.hasPort(port) && (entry.public || entry.network.IsValid() || entry.hasName(name)) {
			return nil
		}
	}
	return failure.New(failure.Refused, "host %s with port %d is not an allowed source: %s", name, port, allowHint)
}

// CheckAddress reports whether a connection for a host may go to this address. Call it with the address that is really
// dialled: the name may have resolved to another one before.
func (a Allow) CheckAddress(host string, to netip.AddrPort) error {
	name, literal, err := canonicalHost(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	if err != nil {
		return failure.New(failure.Refused, "%v", err)
	}
	ip := effectiveAddress(to.Addr())
	reach, kind := classify(ip)
	for _, entry := range a.entries {
		switch {
		case !entry.hasPort(to.Port()):
		case entry.network.IsValid() && entry.network.Contains(ip), entry.public && reach == public, reach != special &&
			!literal.IsValid() && entry.hasName(name):
			return nil
		}
	}
	return a.refuse(name, literal.IsValid(), to, kind)
}

func (a Allow) refuse(name string, literal bool, to netip.AddrPort, kind string) error {
	address := to.String()
	if ip := effectiveAddress(to.Addr()); ip.Is4() && !to.Addr().Unmap().Is4() {
		kind = fmt.Sprintf("%s, as it means %s", kind, ip)
	}
	if literal {
		return failure.New(failure.Refused, "address %s (%s) is not an allowed source: %s", address, kind, allowHint)
	}
	return failure.New(failure.Refused, "host %s resolves to %s (%s), which is not an allowed source: %s", name,
		address, kind, allowHint)
}

// reach classifies an address; it decides what kind of entry allows it.
type reach int

const (
	// public: anywhere on the internet.
	public reach = iota
	// private: the networks of an organisation or a carrier; for a host that resolves to one, an entry with its name is
	// enough.
	private
	// special: everything else; only an entry of the address or its network allows it.
	special
)

type block struct {
	reach    reach
	name     string
	networks []netip.Prefix
}

func blockOf(reach reach, name string, networks ...string) block {
	b := block{reach: reach, name: name}
	for _, network := range networks {
		b.networks = append(b.networks, netip.MustParsePrefix(network))
	}
	return b
}

// blocks are the networks that are not public, narrower ones first. They follow IANA's registries of special-purpose
// addresses; the metadata services of clouds that use public or private addresses are added.
var blocks = []block{
	blockOf(special, "a cloud's metadata service", "168.63.129.16/32", "100.100.100.200/32", "fd00:ec2::/32",
		"fd20:ce::254/128"),
	blockOf(private, "private", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"),
	blockOf(private, "carrier-grade NAT", "100.64.0.0/10"),
	blockOf(special, "unspecified", "0.0.0.0/32", "::/128"),
	blockOf(special, "this network", "0.0.0.0/8"),
	blockOf(special, "loopback", "127.0.0.0/8", "::1/128"),
	blockOf(special, "link-local", "169.254.0.0/16", "fe80::/10"),
	blockOf(special, "Teredo", "2001::/32"),
	blockOf(special, "protocol assignments", "192.0.0.0/24", "2001::/23"),
	blockOf(special, "documentation", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20"),
	blockOf(special, "6to4 relay", "192.88.99.0/24"),
	blockOf(special, "benchmarking", "198.18.0.0/15"),
	blockOf(special, "multicast", "224.0.0.0/4", "ff00::/8"),
	blockOf(special, "local NAT64", "64:ff9b:1::/48"),
	blockOf(special, "discard-only", "100::/64"),
	blockOf(special, "broadcast", "255.255.255.255/32"),
	blockOf(special, "reserved", "240.0.0.0/4"),
	blockOf(public, "public", "0.0.0.0/0", "2000::/3"),
	// IANA assigns global addresses from 2000::/3 only. Everything else is deprecated, of local meaning, or not
	// assigned.
	blockOf(special, "reserved", "::/0"),
}

// classify returns the reach of an address and the description of its network. It expects the result of
// effectiveAddress.
func classify(ip netip.Addr) (reach, string) {
	for _, block := range blocks {
		if slices.ContainsFunc(block.networks, func(network netip.Prefix) bool { return network.Contains(ip) }) {
			return block.reach, block.name
		}
	}
	return special, "not valid"
}

var (
	mapped  = netip.MustParsePrefix("::ffff:0:0/96")
	nat64   = netip.MustParsePrefix("64:ff9b::/96")
	sixToIV = netip.MustParsePrefix("2002::/16")
)

// effectiveAddress returns the address that a connection to ip finally reaches: for IPv6 forms that carry an IPv4
// address, that address.
func effectiveAddress(ip netip.Addr) netip.Addr {
	ip = ip.WithZone("").Unmap()
	if !ip.Is6() {
		return ip
	}
	bytes := ip.As16()
	switch {
	case nat64.Contains(ip):
		return netip.AddrFrom4([4]byte(bytes[12:16]))
	case sixToIV.Contains(ip):
		return netip.AddrFrom4([4]byte(bytes[2:6]))
	}
	return ip
}
