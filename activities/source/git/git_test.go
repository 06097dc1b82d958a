package git_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/activities/source/download"
	"slipway.io/slipway/activities/source/git"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/test/sources"
)

func access(t *testing.T, allow string, secret map[string]string) git.Access {
	t.Helper()
	allowed, err := source.ParseAllow([]string{allow})
	require.NoError(t, err)
	options := download.Options{Allow: allowed}
	if secret != nil {
		data := map[string][]byte{}
		for key, value := range secret {
			data[key] = []byte(value)
		}
		credentials, err := source.ParseCredentials("shop/git", data)
		require.NoError(t, err)
		options.Credentials = &credentials
	}
	return git.Access{Client: download.New(options)}
}

func repositoryAt(t *testing.T, address string) source.Repository {
	t.Helper()
	repository, err := source.ParseRepository(address)
	require.NoError(t, err)
	return repository
}

// requireKind requires a download error of this kind that contains no secret.
func requireKind(t *testing.T, err error, kind download.Kind, says string) {
	t.Helper()
	require.Error(t, err)
	require.True(t, download.Is(err, kind), "%v", err)
	require.ErrorContains(t, err, says)
	require.NotContains(t, err.Error(), "s3cr3t")
}

func TestCommitOfABranch(t *testing.T) {
	t.Parallel()
	server := sources.NewGit(t, "ann", "s3cr3t")
	repository := server.Repository(t, "order")
	at := repositoryAt(t, repository.URL)
	opened := access(t, "127.0.0.0/8", map[string]string{"username": "ann", "password": "s3cr3t", "hosts": server.URL})

	_, err := opened.Commit(t.Context(), at, "main")
	requireKind(t, err, download.Refused, "the repository is empty: push branch main first")
	first := repository.Push("main", map[string]string{"a": "1"})
	other := repository.Push("feature/x", map[string]string{"a": "2"})
	for branch, want := range map[string]string{"main": first, "feature/x": other} {
		got, err := opened.Commit(t.Context(), at, branch)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	moved := repository.Push("main", map[string]string{"a": "3"})
	got, err := opened.Commit(t.Context(), at, "main")
	require.NoError(t, err)
	require.Equal(t, moved, got)

	for _, branch := range []string{"x", "HEAD", "refs/heads/main", "feature"} {
		_, err = opened.Commit(t.Context(), at, branch)
		requireKind(t, err, download.Refused, "has no branch "+branch)
	}
	_, err = opened.Commit(t.Context(), repositoryAt(t, server.URL+"/none.git"), "main")
	requireKind(t, err, download.NotAvailable, "404")
	_, err = access(t, "127.0.0.0/8", nil).Commit(t.Context(), at, "main")
	requireKind(t, err, download.NotAvailable, "401 Unauthorized: no credentials were sent")
	_, err = access(t, "127.0.0.0/8", map[string]string{"username": "ann", "password": "s3cr3t-wrong",
		"hosts": server.URL}).Commit(t.Context(), at, "main")
	requireKind(t, err, download.NotAvailable, "check the credentials")
	unnamed := access(t, "127.0.0.0/8", map[string]string{"username": "ann", "password": "s3cr3t", "hosts": "git.test"})
	_, err = unnamed.Commit(t.Context(), at, "main")
	requireKind(t, err, download.NotAvailable, "does not name this scheme, host and port")
	require.ErrorContains(t, unnamed.Check(at), "the Secret has no credentials for http://127.0.0.1")
	require.NoError(t, opened.Check(at))
}

// A Git address is subject to the same rules as packages.
func TestForbiddenAddresses_AreRefused(t *testing.T) {
	t.Parallel()
	server := sources.NewGit(t, "", "")
	repository := server.Repository(t, "order")
	repository.Push("main", map[string]string{"a": "1"})
	for _, address := range []string{repository.URL, "http://169.254.169.254/latest.git",
		"https://[::ffff:127.0.0.1]/a.git", "http://localhost:1/a.git"} {
		_, err := access(t, "public", nil).Commit(t.Context(), repositoryAt(t, address), "main")
		requireKind(t, err, download.Refused, "SLIPWAY_SOURCE_ALLOW")
	}
	ssh := access(t, "public", nil)
	ssh.Key = newKey(t, "127.0.0.1:1", newSigner(t), newSigner(t))
	_, err := ssh.Commit(t.Context(), repositoryAt(t, "ssh://git@127.0.0.1:1/a.git"), "main")
	requireKind(t, err, download.Refused, "SLIPWAY_SOURCE_ALLOW")
}

// After a redirect the other server gets no credentials, and an address that is not allowed is refused.
func TestRedirect_GetsNoCredentials(t *testing.T) {
	t.Parallel()
	behind := sources.NewGit(t, "", "")
	repository := behind.Repository(t, "order")
	commit := repository.Push("main", map[string]string{"a": "1"})
	target := ""
	var mu sync.Mutex
	var authorizations []string
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		authorizations = append(authorizations, r.Header.Get("Authorization"))
		behind.ServeHTTP(w, r)
	}))
	t.Cleanup(elsewhere.Close)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, target+r.URL.RequestURI(), http.StatusMovedPermanently)
	}))
	t.Cleanup(front.Close)
	opened := access(t, "127.0.0.0/8", map[string]string{"username": "ann", "password": "s3cr3t", "hosts": front.URL})

	target = elsewhere.URL
	got, err := opened.Commit(t.Context(), repositoryAt(t, front.URL+"/order.git"), "main")
	require.NoError(t, err)
	require.Equal(t, commit, got)
	require.Equal(t, []string{""}, authorizations, "credentials go to the host that the Secret names, and to no other")

	target = "http://169.254.169.254"
	_, err = opened.Commit(t.Context(), repositoryAt(t, front.URL+"/order.git"), "main")
	requireKind(t, err, download.Refused, "SLIPWAY_SOURCE_ALLOW")
}

// Every unexpected answer yields an error with a reason, and never a commit.
func TestCommit_WhenServerIsNoGitServer(t *testing.T) {
	t.Parallel()
	const media = "application/x-git-upload-pack-advertisement"
	hash := strings.Repeat("a", 40)
	pkt := func(text string) string { return fmt.Sprintf("%04x%s", len(text)+4, text) }
	for name, tc := range map[string]struct {
		media, body string
		kind        download.Kind
		says        string
	}{
		"Page":    {"text/html", "<html>sign in</html>", download.Refused, "does not answer as a Git server does"},
		"Nothing": {media, "", download.Refused, "the repository is empty"},
		"Garbage": {media, "zzzz", download.Temporary, "ended too early"},
		"Cut": {media, pkt("# service=git-upload-pack\n") + "0000" + pkt(hash+" refs/heads/main\x00agent=x\n"),
			download.Refused, "can't be read"},
		"SHA256": {media, pkt("# service=git-upload-pack\n") + "0000" +
			pkt(strings.Repeat("a", 64)+" refs/heads/main\x00object-format=sha256\n") + "0000", download.Refused,
			"only repositories of Git's SHA-1 format"},
		"Error": {media, pkt("# service=git-upload-pack\n") + "0000" + pkt("ERR access denied s3cr3t"),
			download.Refused, "refuses to list its branches"},
		"WrongCase": {media, pkt("# service=git-upload-pack\n") + "0000" + pkt(hash+" refs/heads/Main\x00agent=x\n") +
			"0000", download.Refused, "has no branch main"},
		"Tag": {media, pkt("# service=git-upload-pack\n") + "0000" + pkt(hash+" refs/tags/main\x00agent=x\n") +
			"0000", download.Refused, "has no branch main"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/a.git/info/refs" || r.URL.RawQuery != "service=git-upload-pack" {
					t.Errorf("requested %s", r.URL)
				}
				w.Header().Set("Content-Type", tc.media)
				_, _ = w.Write([]byte(tc.body))
			}))
			t.Cleanup(server.Close)
			_, err := access(t, "127.0.0.0/8", nil).Commit(context.Background(), repositoryAt(t, server.URL+"/a.git"),
				"main")
			requireKind(t, err, tc.kind, tc.says)
		})
	}
	_, err := access(t, "127.0.0.0/8", nil).Commit(t.Context(), repositoryAt(t, "http://127.0.0.1:1/a.git"), "main")
	requireKind(t, err, download.Temporary, "connection refused")
}

// For every input, decoding ends, and yields either a list or an error.
func FuzzDecode(f *testing.F) {
	hash := strings.Repeat("a", 40)
	for _, seed := range []string{"", "0000", "001e# service=git-upload-pack\n0000",
		"0045" + hash + " refs/heads/main\x00agent=x symref=HEAD:refs/heads/main\n0000", "0008ERR x", "ffff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, list []byte) {
		refs, err := git.Decode(bytes.NewReader(list))
		if err == nil && refs == nil {
			t.Fatal("neither a list nor an error")
		}
	})
}
