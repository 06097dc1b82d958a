package source_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

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
		require.ErrorContains(t, err, "host example.com resolves to "+address+" "+want+", which is not an allowed source: allow it with SLIPWAY_SOURCE_ALLOW", address)
	}
}
