package limits

import (
	"net/netip"
	"sync"
)

// neighbours is the length of the IPv6 prefix that counts as one address: a host usually has the whole network.
const neighbours = 64

// Neighbourhood returns the network that counts as one client in limits by address: an IPv4 address, or an IPv6
// network. The addresses that it cannot parse have the zero network in common.
func Neighbourhood(client string) netip.Prefix {
	address, err := netip.ParseAddr(client)
	if err != nil {
		return netip.Prefix{}
	}
	address = address.Unmap().WithZone("")
	if address.Is4() {
		return netip.PrefixFrom(address, address.BitLen())
	}
	return netip.PrefixFrom(address, neighbours).Masked()
}

// ByAddress limits what the clients of one address occupy at the same time, so that they leave something to others.
// Loopback has no limit of its own, because the processes of this machine share it. A nil ByAddress limits nothing.
type ByAddress struct{ holders }

// holders counts what the clients of each address hold.
type holders struct {
	most int
	mu   sync.Mutex
	held map[netip.Prefix]int
}

// NewByAddress returns limits by address for something of which total exist: one address gets a quarter.
func NewByAddress(total int) *ByAddress {
	return &ByAddress{holders{most: max(1, total/4), held: map[netip.Prefix]int{}}}
}

// Most is how much an address may occupy.
func (b *ByAddress) Most() int { return b.most }

// Acquire occupies one for a client until release is called; ok is false if the client's address has the maximum
// already.
func (b *ByAddress) Acquire(client string) (release func(), ok bool) {
	network := Neighbourhood(client)
	if b == nil || network.Addr().IsLoopback() {
		return func() {}, true
	}
	return b.acquire(network)
}

func (h *holders) acquire(network netip.Prefix) (release func(), ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held[network] >= h.most {
		return nil, false
	}
	h.held[network]++
	return sync.OnceFunc(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.held[network]--; h.held[network] == 0 {
			delete(h.held, network) // else every address ever seen would take memory
		}
	}), true
}
