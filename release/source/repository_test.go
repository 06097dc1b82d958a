package source_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/source"
)

func TestParseRepository(t *testing.T) {
	t.Parallel()
	ssh := func(login, host string, port uint16, path string) source.Repository {
		return source.Repository{Login: login, Host: host, Port: port, Path: path}
	}
	for address, want := range map[string]source.Repository{
		"https://git.test/shop/order.git":          {URL: "https://git.test/shop/order.git"},
		"http://127.0.0.1:3000/order.git/":         {URL: "http://127.0.0.1:3000/order.git"},
		"ssh://git.test/shop/order.git":            ssh("git", "git.test", 22, "/shop/order.git"),
		"ssh://ann@Git.Test.:2222/shop/order.git":  ssh("ann", "git.test", 2222, "/shop/order.git"),
		"ssh://git@git.test/~ann/order.git":        ssh("git", "git.test", 22, "~ann/order.git"),
		"ssh://git@[::1]:22/order.git":             ssh("git", "::1", 22, "/order.git"),
		"git@git.test:shop/order.git":              ssh("git", "git.test", 22, "shop/order.git"),
		"git.test:/srv/order.git":                  ssh("git", "git.test", 22, "/srv/order.git"),
		"ssh://git@git.test/it's%20here/order.git": ssh("git", "git.test", 22, "/it's here/order.git"),
	} {
		got, err := source.ParseRepository(address)
		require.NoError(t, err, address)
		require.Equal(t, want, got, address)
	}
	for address, want := range map[string]string{
		"git://git.test/order.git":                "git:// is neither encrypted",
		"https://ann:s3cr3t@git.test/order.git":   "user name or password",
		"ssh://ann:s3cr3t@git.test/order.git":     "must not contain a password",
		"https://git.test/order.git?token=s3cr3t": "has no query",
		"ssh://git.test/order.git?token=s3cr3t":   "has no query",
		"ssh://git.test":                          "has no path",
		"ssh://git.test:0/order.git":              "the port is not a number",
		"git.test":                                "has no path",
		"git@git.test:-oProxyCommand=s3cr3t":      "has no path to a repository",
		"-oProxyCommand=x@git.test:order.git":     "has no user",
		"git@-git.test s3cr3t:order.git":          "blank or a control character",
		"git@0x7f000001:order.git":                "notation that is not supported",
		"file:///srv/order.git":                   "only http and https",
	} {
		_, err := source.ParseRepository(address)
		require.True(t, failure.Is(err, failure.Refused), address)
		require.ErrorContains(t, err, want, address)
		require.NotContains(t, err.Error(), "s3cr3t", address)
	}
	repository, err := source.ParseRepository("ssh://git@[::1]:2222/order.git")
	require.NoError(t, err)
	require.Equal(t, "[::1]:2222", repository.Address())
}

func TestRedactRepository(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"https://u:p@git.test/a.git?x=1": "https://git.test/a.git?…",
		"ssh://ann@git.test:22/a.git":    "ssh://git.test:22/a.git",
		"ann@git.test:a.git":             "git.test:a.git",
		"git.test:a.git":                 "git.test:a.git",
		"nothing":                        source.Unreadable,
	} {
		require.Equal(t, want, source.RedactRepository(address), address)
	}
}

// A key needs known hosts to authenticate the server, and is never printed.
func TestParseSSHKey(t *testing.T) {
	t.Parallel()
	key, err := source.ParseSSHKey("shop/git", data("ssh-privatekey", "k3y", "known_hosts",
		"git.test ssh-ed25519 AAAA"))
	require.NoError(t, err)
	require.NotContains(t, fmt.Sprintf("%v %+v %#v", key, &key, key), "k3y")
	_, err = source.ParseSSHKey("shop/git", data("ssh-privatekey", "k3y"))
	require.ErrorContains(t, err, "Secret shop/git: the key known_hosts is missing")
	require.NotContains(t, err.Error(), "k3y")
	_, err = source.ParseSSHKey("shop/git", data("known_hosts", "x", "password", "p"))
	require.ErrorContains(t, err, "the key ssh-privatekey is missing")
}
