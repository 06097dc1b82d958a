package limits

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"

	"github.com/labstack/echo/v4"
)

// Proxies are the networks of proxies that name the client of a request in X-Forwarded-For. The zero Proxies are none:
// the client is then the peer of the connection, because any client can send that header.
type Proxies struct{ extract echo.IPExtractor }

// NewProxies takes networks in CIDR notation, and single addresses.
func NewProxies(networks []string) (Proxies, error) {
	if len(networks) == 0 {
		return Proxies{}, nil
	}
	// echo trusts every private network unless each is excluded
	trust := []echo.TrustOption{echo.TrustLoopback(false), echo.TrustLinkLocal(false), echo.TrustPrivateNet(false)}
	for _, text := range networks {
		network, err := parseNetwork(text)
		if err != nil {
			return Proxies{}, err
		}
		trust = append(trust, echo.TrustIPRange(&net.IPNet{IP: network.Addr().AsSlice(),
			Mask: net.CIDRMask(network.Bits(), network.Addr().BitLen())}))
	}
	return Proxies{extract: echo.ExtractIPFromXFFHeader(trust...)}, nil
}

func parseNetwork(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	network, err := netip.ParsePrefix(text)
	if err != nil {
		return network, fmt.Errorf("%q is neither a network nor an address: use, for example, 10.0.0.0/8", text)
	}
	return network, nil
}

// Client returns the address of a request's client: the peer of the connection, or if that is a proxy, the nearest
// address in X-Forwarded-For that is none.
func (p Proxies) Client(r *http.Request) string {
	if p.extract == nil {
		return echo.ExtractIPDirect()(r)
	}
	return p.extract(r)
}
