package source_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/source"
)

func TestCheckAddressByDefault(t *testing.T) {
	allow, err := source.ParseAllow(nil)
	require.NoError(t, err)
	for address, want := range map[string]string{
		"93.184.215.14:443":                         "",
		"[2606:2800:21f::1]:80":                     "",
		"[::ffff:93.184.215.14]:80":                 "",
		"[64:ff9b::5db8:d70e]:80":                   "",
		"[2002:5db8:d70e::1]:80":                    "",
		"127.0.0.1:80":                              "(loopback)",
		"127.255.255.254:80":                        "(loopback)",
		"[::1]:80":                                  "(loopback)",
		"[::ffff:127.0.0.1]:80":                     "(loopback)",
		"[64:ff9b::7f00:1]:80":                      "(loopback, as it means 127.0.0.1)",
		"[2002:7f00:1::]:80":                        "(loopback, as it means 127.0.0.1)",
		"[::7f00:1]:80":                             "(reserved)",
		"[64:ff9b:1::7f00:1]:80":                    "(local NAT64)",
		"[2001:0:4136:e378:8000:63bf:80ff:fffe]:80": "(Teredo)",
		"0.0.0.0:80":                                "(unspecified)",
		"0.1.2.3:80":                                "(this network)",
		"[::]:80":                                   "(unspecified)",
		"10.0.0.1:80":                               "(private)",
		"172.31.255.255:80":                         "(private)",
		"172.32.0.0:80":                             "",
		"192.168.1.1:80":                            "(private)",
		"[fd12::1]:80":                              "(private)",
		"[64:ff9b::a00:1]:80":                       "(private, as it means 10.0.0.1)",
		"100.64.0.1:80":                             "(carrier-grade NAT)",
		"100.128.0.1:80":                            "",
		"100.100.100.200:80":                        "(a cloud's metadata service)",
		"168.63.129.16:80":                          "(a cloud's metadata service)",
		"169.254.169.254:80":                        "(link-local)",
		"[2002:a9fe:a9fe::]:80":                     "(link-local, as it means 169.254.169.254)",
		"[fe80::1]:80":                              "(link-local)",
		"[fe80::1%eth0]:80":                         "(link-local)",
		"[fec0::1]:80":                              "(reserved)",
		"[fd00:ec2::254]:80":                        "(a cloud's metadata service)",
		"192.0.0.192:80":                            "(protocol assignments)",
		"192.0.2.1:80":                              "(documentation)",
		"198.51.100.1:80":                           "(documentation)",
		"203.0.113.1:80":                            "(documentation)",
		"[2001:db8::1]:80":                          "(documentation)",
		"[3fff::1]:80":                              "(documentation)",
		"198.19.0.1:80":                             "(benchmarking)",
		"192.88.99.1:80":                            "(6to4 relay)",
		"224.0.0.1:80":                              "(multicast)",
		"[ff02::1]:80":                              "(multicast)",
		"240.0.0.1:80":                              "(reserved)",
		"255.255.255.255:80":                        "(broadcast)",
		"[100::1]:80":                               "(discard-only)",
		"[5f00::1]:80":                              "(reserved)",
	} {
		err := allow.CheckAddress("example.com", netip.MustParseAddrPort(address))
		if want == "" {
			require.NoError(t, err, address)
			continue
		}
		require.ErrorContains(t, err, "host example.com resolves to "+address+" "+want+
			", which is not an allowed source: allow it with --source-allow (SLIPWAY_SOURCE_ALLOW) of the party's worker",
			address)
	}
}

func TestParseAllow(t *testing.T) {
	for text, want := range map[string]string{
		"public":             "public",
		" PUBLIC:443 ":       "public:443",
		"Nexus.Example.com.": "nexus.example.com",
		"nexus:8081":         "nexus:8081",
		"my_host":            "my_host",
		"*.Example.com:443":  "*.example.com:443",
		"bücher.example":     "xn--bcher-kva.example",
		"10.0.0.0/8":         "10.0.0.0/8",
		"10.0.0.0/8:443":     "10.0.0.0/8:443",
		"127.0.0.1:8000":     "127.0.0.1:8000",
		"127.0.0.1":          "127.0.0.1",
		"127.0.0.1/32":       "127.0.0.1",
		"[::1]:80":           "[::1]:80",
		"[0:0::1]":           "[::1]",
		"::1":                "[::1]",
		"fd00::/8":           "fd00::/8",
		"[fd00::/8]:443":     "[fd00::/8]:443",
		"::/0":               "::/0",
	} {
		allow, err := source.ParseAllow([]string{text})
		require.NoError(t, err, text)
		require.Equal(t, []string{want}, allow.Entries(), text)
		again, err := source.ParseAllow(allow.Entries())
		require.NoError(t, err, text)
		require.Equal(t, allow, again, text)
	}
	for text, want := range map[string]string{
		"https://example.com":  "this is a URL",
		"example.com/path":     "not a network",
		"10.1.0.0/8":           "write 10.0.0.0/8",
		"10.0.0.0/33":          "not a network",
		"fd00::/8:443":         "not a network",
		"host:":                "the port is missing",
		"host:0":               "1 to 65535",
		"host:65536":           "1 to 65535",
		"host:http":            "1 to 65535",
		"[::1":                 "write an IPv6 address as",
		"[::1]80":              "write an IPv6 address as",
		"[::1]:":               "write an IPv6 address as",
		"[host]:80":            "write an IPv6 address as",
		"fe80::1%eth0":         "zones",
		"*":                    "not a valid name",
		"*.*.com":              "not a valid name",
		"a.*.com":              "not a valid name",
		"*.10.0.0.1":           "no names under it",
		"user@host":            "not a valid name",
		"a..b":                 "not a valid name",
		".":                    "empty",
		"0x7f.1":               "notation that is not supported",
		"2130706433":           "notation that is not supported",
		"017700000001":         "notation that is not supported",
		"127.1":                "notation that is not supported",
		"localhost:8000":       "write 127.0.0.1 or [::1]",
		"*.localhost":          "write 127.0.0.1 or [::1]",
		"::ffff:10.0.0.1":      "checked as the IPv4 address",
		"::ffff:10.0.0.0/104":  "checked as the IPv4 address",
		"64:ff9b::/96":         "checked as the IPv4 address",
		"2002:7f00:1::/48":     "checked as the IPv4 address",
		"a b":                  "not a valid name",
		"host\nexample.com:80": "not a valid name",
	} {
		_, err := source.ParseAllow([]string{"public", text})
		require.ErrorContains(t, err, want, text)
		require.ErrorContains(t, err, "SLIPWAY_SOURCE_ALLOW", text)
		require.True(t, failure.Is(err, failure.Refused), text)
	}
}

func TestParseAllow_AllowsPublic_WhenEmpty(t *testing.T) {
	for _, entries := range [][]string{nil, {}, {""}, {" ", ""}} {
		allow, err := source.ParseAllow(entries)
		require.NoError(t, err)
		require.Equal(t, []string{"public"}, allow.Entries())
	}
	allow, err := source.ParseAllow([]string{"b", "a", "B."})
	require.NoError(t, err)
	require.Equal(t, []string{"b", "a"}, allow.Entries(), "each entry once, in the given order")
	require.Error(t, source.Allow{}.CheckHost("example.com", 443), "the zero value allows nothing")
	require.Error(t, source.Allow{}.CheckAddress("example.com", netip.MustParseAddrPort("93.184.215.14:443")))
}

func TestCheckAddressByEntries(t *testing.T) {
	for _, c := range []struct {
		reason, entry, host, address string
		allowed                      bool
	}{
		{"the port of an entry counts", "public:443", "a.example", "93.184.215.14:443", true},
		{"another port", "public:443", "a.example", "93.184.215.14:80", false},
		{"the list is complete: a host alone does not allow the public", "b.example", "a.example", "93.184.215.14:443",
			false},
		{"a host may be private", "nexus.shop.svc", "nexus.shop.svc", "10.96.0.10:8081", true},
		{"a host may be private, IPv6", "nexus.shop.svc", "nexus.shop.svc", "[fd12::1]:8081", true},
		{"a host may be behind carrier-grade NAT", "nexus.shop.svc", "nexus.shop.svc", "100.64.1.1:8081", true},
		{"a host may be public", "a.example", "a.example", "93.184.215.14:443", true},
		{"names are compared in canonical spelling", "a.example", "A.Example.", "10.0.0.1:443", true},
		{"a host with a port", "a.example:443", "a.example", "10.0.0.1:80", false},
		{"a name never allows loopback", "a.example", "a.example", "127.0.0.1:443", false},
		{"nor an embedded loopback address", "a.example", "a.example", "[64:ff9b::7f00:1]:443", false},
		{"nor mapped", "a.example", "a.example", "[::ffff:127.0.0.1]:443", false},
		{"nor a metadata service", "a.example", "a.example", "169.254.169.254:80", false},
		{"nor one inside carrier-grade NAT", "a.example", "a.example", "100.100.100.200:80", false},
		{"nor one inside the unique local addresses", "a.example", "a.example", "[fd00:ec2::254]:80", false},
		{"nor the unspecified address, which is this machine", "a.example", "a.example", "0.0.0.0:80", false},
		{"public does not allow private", "public", "a.example", "10.0.0.1:443", false},
		{"names under a domain", "*.example.com", "a.b.example.com", "10.0.0.1:443", true},
		{"the domain itself is not under it", "*.example.com", "example.com", "10.0.0.1:443", false},
		{"a name with only the same ending", "*.example.com", "badexample.com", "10.0.0.1:443", false},
		{"a network", "10.0.0.0/8", "a.example", "10.1.2.3:443", true},
		{"an embedded IPv4 address is in its network", "10.0.0.0/8", "a.example", "[64:ff9b::a01:203]:443", true},
		{"outside the network", "10.0.0.0/8", "a.example", "11.1.2.3:443", false},
		{"a network's port", "10.0.0.0/8:443", "a.example", "10.1.2.3:80", false},
		{"loopback by its address", "127.0.0.1:8000", "127.0.0.1", "127.0.0.1:8000", true},
		{"loopback by its address, mapped", "127.0.0.1:8000", "::ffff:127.0.0.1", "[::ffff:127.0.0.1]:8000", true},
		{"a name may lead to an allowed loopback address", "127.0.0.1:8000", "localhost", "127.0.0.1:8000", true},
		{"another loopback address", "127.0.0.1:8000", "localhost", "127.0.0.2:8000", false},
		{"IPv6 loopback", "[::1]:80", "::1", "[::1]:80", true},
		{"every IPv6 address does not include embedded IPv4 addresses", "::/0", "a.example", "[64:ff9b::7f00:1]:80",
			false},
		{"every IPv4 address, if the entry says so", "0.0.0.0/0", "a.example", "169.254.169.254:80", true},
		{"no entry allows an invalid host", "0.0.0.0/0", "a..b", "10.0.0.1:80", false},
	} {
		allow, err := source.ParseAllow([]string{c.entry})
		require.NoError(t, err, c.reason)
		err = allow.CheckAddress(c.host, netip.MustParseAddrPort(c.address))
		if c.allowed {
			require.NoError(t, err, c.reason)
			continue
		}
		require.True(t, failure.Is(err, failure.Refused), "%s: %v", c.reason, err)
	}
}

func TestCheckHost(t *testing.T) {
	for _, c := range []struct {
		reason, entry, host string
		port                uint16
		says                string
	}{
		{"it may resolve to a public address", "public", "a.example", 443, ""},
		{"it may resolve into the network", "10.0.0.0/8:443", "a.example", 443, ""},
		{"no entry has the port", "10.0.0.0/8:443", "a.example", 80,
			"host a.example with port 80 is not an allowed source: allow it with --source-allow " +
				"(SLIPWAY_SOURCE_ALLOW) of the party's worker"},
		{"its name is allowed", "a.example", "A.EXAMPLE.", 80, ""},
		{"another name is allowed", "b.example", "a.example", 80, "not an allowed source"},
		{"an internationalised name", "bücher.example", "BÜCHER.example", 80, ""},
		{"an address is checked at once", "public", "127.0.0.1", 80,
			"address 127.0.0.1:80 (loopback) is not an allowed source"},
		{"an address with a final dot", "public", "127.0.0.1.", 80, "(loopback)"},
		{"an address in brackets", "public", "[::1]", 80, "address [::1]:80 (loopback)"},
		{"an address in wide digits", "public", "１２７。０。０。１", 80, "(loopback)"},
		{"an address as one number", "public", "2130706433", 80, "notation that is not supported"},
		{"an octal address", "public", "0177.0.0.1", 80, "notation that is not supported"},
		{"a hexadecimal address", "public", "0x7f000001", 80, "notation that is not supported"},
		{"a hexadecimal part", "public", "127.0.0.0x1", 80, "notation that is not supported"},
		{"a short address", "public", "127.1", 80, "notation that is not supported"},
		{"five parts", "public", "1.2.3.4.5", 80, "notation that is not supported"},
		{"a zone", "public", "fe80::1%eth0", 80, "zones are not supported"},
		{"no host", "public", "", 80, "empty"},
		{"a host with a port in it", "public", "a.example:80", 80, "not a valid name"},
		{"a line break", "public", "a\n.example", 80, "not a valid name"},
	} {
		allow, err := source.ParseAllow([]string{c.entry})
		require.NoError(t, err, c.reason)
		if err = allow.CheckHost(c.host, c.port); c.says == "" {
			require.NoError(t, err, c.reason)
			continue
		}
		require.ErrorContains(t, err, c.says, c.reason)
	}
}

// For every valid entry, its canonical spelling is equivalent, and a name or `public` allows no special address.
func FuzzParseAllow(f *testing.F) {
	for _, seed := range []string{"public", "public:443", "*.example.com:1", "10.0.0.0/8:443", "[::1]:80",
		"[fd00::/8]:1", "::ffff:1.2.3.4", "bücher.example", "１２７.0.0.1"} {
		f.Add(seed, "a.example")
	}
	f.Fuzz(func(t *testing.T, text, host string) {
		allow, err := source.ParseAllow([]string{text})
		if err != nil {
			return
		}
		entries := allow.Entries()
		require.Len(t, entries, 1)
		again, err := source.ParseAllow(entries)
		require.NoError(t, err)
		require.Equal(t, allow, again)
		if strings.Contains(entries[0], "/") {
			return
		}
		for _, address := range []string{"127.0.0.1:80", "169.254.169.254:80", "[::1]:80", "0.0.0.0:80"} {
			to := netip.MustParseAddrPort(address)
			if !strings.HasPrefix(entries[0], to.Addr().String()) &&
				!strings.HasPrefix(entries[0], "["+to.Addr().String()) {
				require.Error(t, allow.CheckAddress(host, to), "%s allows %s", entries[0], address)
			}
		}
	})
}
