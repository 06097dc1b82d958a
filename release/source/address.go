package source

import (
	"net/netip"
)

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
	network netip.Prefix
	reach   reach
	name    string
}

// blocks are the networks that are not public, narrower ones first. They follow IANA's registries of special-purpose
// addresses; the metadata services of clouds that use public or private addresses are added.
var blocks = []block{
	{netip.MustParsePrefix("168.63.129.16/32"), special, "a cloud's metadata service"},
	{netip.MustParsePrefix("100.100.100.200/32"), special, "a cloud's metadata service"},
	{netip.MustParsePrefix("fd00:ec2::/32"), special, "a cloud's metadata service"},
	{netip.MustParsePrefix("fd20:ce::254/128"), special, "a cloud's metadata service"},

	{netip.MustParsePrefix("10.0.0.0/8"), private, "private"},
	{netip.MustParsePrefix("172.16.0.0/12"), private, "private"},
	{netip.MustParsePrefix("192.168.0.0/16"), private, "private"},
	{netip.MustParsePrefix("100.64.0.0/10"), private, "carrier-grade NAT"},
	{netip.MustParsePrefix("fc00::/7"), private, "private"},

	{netip.MustParsePrefix("0.0.0.0/32"), special, "unspecified"},
	{netip.MustParsePrefix("0.0.0.0/8"), special, "this network"},
	{netip.MustParsePrefix("127.0.0.0/8"), special, "loopback"},
	{netip.MustParsePrefix("169.254.0.0/16"), special, "link-local"},
	{netip.MustParsePrefix("192.0.0.0/24"), special, "protocol assignments"},
	{netip.MustParsePrefix("192.0.2.0/24"), special, "documentation"},
	{netip.MustParsePrefix("192.88.99.0/24"), special, "6to4 relay"},
	{netip.MustParsePrefix("198.18.0.0/15"), special, "benchmarking"},
	{netip.MustParsePrefix("198.51.100.0/24"), special, "documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), special, "documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), special, "multicast"},
	{netip.MustParsePrefix("255.255.255.255/32"), special, "broadcast"},
	{netip.MustParsePrefix("240.0.0.0/4"), special, "reserved"},
	{netip.MustParsePrefix("0.0.0.0/0"), public, "public"},

	{netip.MustParsePrefix("::/128"), special, "unspecified"},
	{netip.MustParsePrefix("::1/128"), special, "loopback"},
	{netip.MustParsePrefix("fe80::/10"), special, "link-local"},
	{netip.MustParsePrefix("ff00::/8"), special, "multicast"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), special, "local NAT64"},
	{netip.MustParsePrefix("100::/64"), special, "discard-only"},
	{netip.MustParsePrefix("2001::/32"), special, "Teredo"},
	{netip.MustParsePrefix("2001::/23"), special, "protocol assignments"},
	{netip.MustParsePrefix("2001:db8::/32"), special, "documentation"},
	{netip.MustParsePrefix("3fff::/20"), special, "documentation"},
	{netip.MustParsePrefix("2000::/3"), public, "public"},
	// IANA assigns global addresses from 2000::/3 only. Everything else is deprecated, of local meaning, or not
	// assigned.
	{netip.MustParsePrefix("::/0"), special, "reserved"},
}

// classify returns the reach of an address and the description of its network. It expects the result of
// effectiveAddress.
func classify(ip netip.Addr) (reach, string) {
	for _, block := range blocks {
		if block.network.Contains(ip) {
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
