package source_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/source"
)

func data(pairs ...string) map[string][]byte {
	made := map[string][]byte{}
	for i := 0; i < len(pairs); i += 2 {
		made[pairs[i]] = []byte(pairs[i+1])
	}
	return made
}

func TestCredentials_AreSentOnlyToListedHosts(t *testing.T) {
	credentials, err := source.ParseCredentials("shop/nexus", data("token", "t0ken\n", "hosts",
		"Nexus.Example.com, alt.example:8443\nhttp://plain.example\thttp://plain.example:8080 https://over.example "+
			"[::1] nexus.example.com\n"))
	require.NoError(t, err)
	for raw, named := range map[string]bool{
		"https://nexus.example.com/a":      true,
		"https://NEXUS.example.com.:443/a": true,
		"http://nexus.example.com/a":       false, // plain http was not permitted
		"http://nexus.example.com:443/a":   false,
		"https://nexus.example.com:444/a":  false, // another port may be another service
		"https://sub.nexus.example.com/a":  false,
		"https://example.com/a":            false,
		"https://alt.example:8443/a":       true,
		"https://alt.example/a":            false,
		"http://alt.example:8443/a":        false,
		"http://plain.example/a":           true,
		"http://plain.example:80/a":        true,
		"http://plain.example:8080/a":      true,
		"http://plain.example:8081/a":      false,
		"http://plain.example:443/a":       false,
		"https://plain.example/a":          true,
		"https://plain.example:8080/a":     true,
		"https://over.example/a":           true,
		"http://over.example/a":            false,
		"https://[0::1]/a":                 true,
		"ftp://nexus.example.com/a":        false,
		"https://nexus.example.com@evil/a": false,
		"https://0x7f.1/a":                 false,
	} {
		u, err := url.Parse(raw)
		require.NoError(t, err, raw)
		require.Equal(t, named, credentials.Allows(u), raw)
		want := map[bool]string{true: "Bearer t0ken"}[named]
		require.Equal(t, want, credentials.Authorization(u), raw)
	}
	u, _ := url.Parse("https://nexus.example.com/")
	require.Empty(t, source.Credentials{Token: "t", Hosts: []string{"nexus.example.com"}}.Authorization(u),
		"credentials that were not parsed are never sent")
}

func TestParseCredentials(t *testing.T) {
	u, err := url.Parse("https://h/")
	require.NoError(t, err)
	for _, c := range []struct {
		reason  string
		data    map[string][]byte
		want    string // the header
		errText string // part of the error
	}{
		{"a user", data("username", "me", "password", "pass:wörd", "hosts", "h"), "Basic bWU6cGFzczp3w7ZyZA==", ""},
		{"a file ends in a line break", data("username", "me\n", "password", "p\r\n", "hosts", "h\n"), "Basic bWU6cA==",
			""},
		{"an API key as the user name", data("username", "key", "password", "", "hosts", "h"), "Basic a2V5Og==", ""},
		{"a token", data("token", "t", "hosts", "h"), "Bearer t", ""},
		{"only a query: no header", data("query", "?sig=1", "hosts", "h"), "", ""},
		{"a Secret may serve other purposes", data("token", "t", "hosts", "h", "ssh-privatekey", "k"), "Bearer t", ""},
		{"no hosts", data("token", "t0psecret"), "", "Secret shop/nexus: the key hosts is missing"},
		{"blank hosts", data("token", "t0psecret", "hosts", " ,\n"), "", "the key hosts is missing"},
		{"nothing", data("hosts", "h"), "", "it has no credentials"},
		{"no password", data("username", "t0psecret", "hosts", "h"), "", "belong together"},
		{"no user name", data("password", "t0psecret", "hosts", "h"), "", "belong together"},
		{"two kinds", data("username", "u", "password", "t0psecret", "token", "t0psecret", "hosts", "h"), "",
			"both a user name and a token"},
		{"a colon", data("username", "t0psecret:", "password", "p", "hosts", "h"), "", "colon"},
		{"a forged header", data("token", "t0psecret\r\nX: y", "hosts", "h"), "", "the token contains a blank"},
		{"a control character", data("username", "u", "password", "t0psecret\nx", "hosts", "h"), "",
			"control character"},
		{"a bad query", data("query", "t0psecret x", "hosts", "h"), "", "the query contains"},
		{"a fragment", data("query", "t0psecret#x", "hosts", "h"), "", "the query contains"},
		{"a wildcard", data("token", "t", "hosts", "*.example.com"), "", "an entry is not a host"},
		{"a URL with a path", data("token", "t", "hosts", "https://h/t0psecret"), "", "an entry is not a host"},
		{"a URL with a user", data("token", "t", "hosts", "https://t0psecret@h"), "", "an entry is not a host"},
		{"another scheme", data("token", "t", "hosts", "ftp://h"), "", "an entry is not a host"},
		{"two schemes", data("token", "t", "hosts", "http://https://h"), "", "an entry is not a host"},
		{"a bad port", data("token", "t", "hosts", "h:0"), "", "an entry is not a host"},
	} {
		credentials, err := source.ParseCredentials("shop/nexus", c.data)
		if c.errText == "" {
			require.NoError(t, err, c.reason)
			require.Equal(t, c.want, credentials.Authorization(u), c.reason)
			continue
		}
		require.ErrorContains(t, err, c.errText, c.reason)
		require.NotContains(t, err.Error(), "t0psecret", c.reason)
		require.True(t, failure.Is(err, failure.Refused), c.reason)
	}
}

// Credentials that are printed, logged or serialised by mistake show only the hosts.
func TestCredentialsAreNotPrinted(t *testing.T) {
	credentials, err := source.ParseCredentials("shop/nexus",
		data("username", "s3cret", "password", "s3cret", "query", "s3cret", "hosts", "h"))
	require.NoError(t, err)
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		require.Equal(t, "credentials for h", fmt.Sprintf(format, credentials))
		require.Equal(t, "credentials for h", fmt.Sprintf(format, &credentials))
	}
	encoded, err := json.Marshal(credentials)
	require.NoError(t, err)
	require.JSONEq(t, `"credentials for h"`, string(encoded))
}
