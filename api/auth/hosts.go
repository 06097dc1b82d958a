package auth

import (
	"net"
	"net/netip"
	"strings"
)

// Hosts are the host names that requests may be addressed to. They protect against DNS rebinding: a page's own host
// name can be made to resolve to this machine, and its requests are then same-origin; but they carry that name in Host.
type Hosts struct{ names map[string]bool }

// NewHosts takes the addresses that the engine listens on, as host:port, and the additional names that it is reached
// by.
func NewHosts(listens, names []string) Hosts {
	hosts := Hosts{names: map[string]bool{}}
	for _, listen := range listens {
		host, _, err := net.SplitHostPort(listen)
		if every, _ := netip.ParseAddr(host); err == nil && host != "" && !every.IsUnspecified() {
			hosts.names[canonical(host)] = true
		}
	}
	for _, name := range names {
		hosts.names[canonical(name)] = true
	}
	return hosts
}

// Allows reports whether a request may be addressed to this authority, a host with or without a port. Loopback is
// always allowed, and so is the address that the request arrived at: an IP address cannot be rebound. An empty
// authority is allowed, because browsers always send one.
func (h Hosts) Allows(authority string, local net.Addr) bool {
	if authority == "" {
		return true
	}
	host := authority
	if name, _, err := net.SplitHostPort(authority); err == nil {
		host = name
	}
	host = canonical(host)
	if host == "localhost" || h.names[host] {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && (address.IsLoopback() || address == addressOf(local))
}

// canonical returns a host in comparable form: names in lower case, IP addresses in their shortest form.
func canonical(host string) string {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if address, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")); err == nil {
		return address.Unmap().WithZone("").String()
	}
	return host
}

func addressOf(local net.Addr) netip.Addr {
	tcp, ok := local.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap().WithZone("")
}
