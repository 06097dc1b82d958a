package sources_test

import (
	"crypto/rand"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"slipway.io/slipway/test/sources"
)

// ask sends a request and returns the response, its body, and the error of reading the body.
func ask(t *testing.T, method, url string, headers ...string) (*http.Response, string, error) {
	t.Helper()
	request, err := http.NewRequest(method, url, nil)
	require.NoError(t, err)
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response, string(body), err
}

// TestFiles checks what tests of downloads rely on: which content a request gets, and which requests count.
func TestFiles(t *testing.T) {
	t.Parallel()
	f := sources.NewFiles(t)
	url := f.URL + "/latest.zip"
	r, _, _ := ask(t, http.MethodGet, url)
	assert.Equal(t, http.StatusNotFound, r.StatusCode)
	f.Put("/latest.zip", []byte("first"), []byte("second"))
	_, _, _ = ask(t, http.MethodHead, url)
	first, body, _ := ask(t, http.MethodGet, url)
	assert.Equal(t, "first", body)
	second, body, _ := ask(t, http.MethodGet, url, "If-None-Match", first.Header.Get("ETag"))
	assert.Equal(t, "second", body, "another content must have another ETag")
	unchanged, _, _ := ask(t, http.MethodGet, url, "If-None-Match", second.Header.Get("ETag"))
	assert.Equal(t, http.StatusNotModified, unchanged.StatusCode)
	assert.NotEqual(t, first.Header.Get("Last-Modified"), second.Header.Get("Last-Modified"))
	assert.Equal(t, 2, f.Downloads("/latest.zip"))

	f.Next("/latest.zip", sources.CutOff([]byte("second"), 3),
		sources.Status(http.StatusServiceUnavailable, "Retry-After", "1"),
		http.RedirectHandler("/moved", http.StatusFound))
	_, body, err := ask(t, http.MethodGet, url)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.Equal(t, "sec", body)
	busy, _, _ := ask(t, http.MethodGet, url)
	assert.Equal(t, "1", busy.Header.Get("Retry-After"))
	f.Put("/moved", []byte("elsewhere"))
	_, body, _ = ask(t, http.MethodGet, url)
	assert.Equal(t, "elsewhere", body)
	part, body, _ := ask(t, http.MethodGet, url, "Range", "bytes=1-2")
	assert.Equal(t, http.StatusPartialContent, part.StatusCode)
	assert.Equal(t, "ec", body)
	assert.Equal(t, 4, f.Downloads("/latest.zip"), "the cut off and the partial download must count")

	f.RequireBasic("ann", "secret")
	refused, _, _ := ask(t, http.MethodGet, url)
	assert.Equal(t, http.StatusUnauthorized, refused.StatusCode)
	_, body, _ = ask(t, http.MethodGet, strings.Replace(url, "://", "://ann:secret@", 1))
	assert.Equal(t, "second", body)
	requests := f.Requests("/latest.zip")
	assert.NotEmpty(t, requests[len(requests)-1].Header.Get("Authorization"))
	f.Remove("/latest.zip")
	removed, _, _ := ask(t, http.MethodGet, strings.Replace(url, "://", "://ann:secret@", 1))
	assert.Equal(t, http.StatusNotFound, removed.StatusCode)
}

// TestGit checks that a repository can be cloned and pushed to over HTTP, also with a push so large that Git sends it
// in chunks, and not without the password.
func TestGit(t *testing.T) {
	t.Parallel()
	for _, login := range []string{"", "ann:secret@"} {
		username, password, _ := strings.Cut(strings.TrimSuffix(login, "@"), ":")
		g := sources.NewGit(t, username, password)
		r := g.Repository(t, "shop")
		first := r.Push("main", map[string]string{"deploy/build.sh": "echo 1"})
		noise := make([]byte, 3<<20)
		_, _ = rand.Read(noise)
		second := r.Push("release", map[string]string{"deploy/build.sh": "echo 2", "noise": string(noise)})
		assert.NotEqual(t, first, second)
		for branch, want := range map[string]string{"main": first, "release": second} {
			clone := filepath.Join(t.TempDir(), "clone")
			out, err := git("clone", "--quiet", "--branch", branch, strings.Replace(r.URL, "://", "://"+login, 1),
				clone)
			require.NoError(t, err, out)
			head, err := git("-C", clone, "rev-parse", "HEAD")
			require.NoError(t, err, head)
			assert.Equal(t, want, strings.TrimSpace(head))
			assert.FileExists(t, filepath.Join(clone, "deploy", "build.sh"))
		}
		if login != "" {
			out, err := git("ls-remote", r.URL)
			require.Error(t, err, out)
		}
	}
}

func git(args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Env = append(os.Environ(), "GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_GLOBAL=/dev/null")
	out, err := cmd.CombinedOutput()
	return string(out), err
}
