package sources

import (
	"bytes"
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Git is a server of Git repositories over HTTP on loopback, with Git's own backend.
type Git struct {
	// URL is its address, without a slash at the end; a repository is at URL/name.git.
	URL string

	folder  string
	backend http.Handler
	login   *login
}

// NewGit starts a server without repositories, which ends with the test. With a username it requires that username and
// password. Without Git on the machine the test is skipped.
func NewGit(t testing.TB, username, password string) *Git {
	t.Helper()
	where, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Skipf("needs git on this machine: %v", err)
	}
	program := filepath.Join(strings.TrimSpace(string(where)), "git-http-backend")
	if _, err := os.Stat(program); err != nil {
		t.Skipf("needs git http-backend on this machine: %v", err)
	}
	g := &Git{folder: t.TempDir()}
	if username != "" {
		g.login = &login{username, password}
	}
	g.backend = &cgi.Handler{Path: program, Env: append(gitEnv(), "GIT_PROJECT_ROOT="+g.folder,
		"GIT_HTTP_EXPORT_ALL=1")}
	server := httptest.NewServer(g)
	g.URL = server.URL
	t.Cleanup(server.Close)
	return g
}

// gitEnv isolates Git from the user's settings and prevents prompts.
func gitEnv() []string {
	return []string{"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=Ann", "GIT_AUTHOR_EMAIL=ann@example.com", "GIT_COMMITTER_NAME=Ann",
		"GIT_COMMITTER_EMAIL=ann@example.com"}
}

// ServeHTTP lets Git answer one request. CGI does not support a body of unknown length, so such a body is read first.
func (g *Git) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if username, password, _ := r.BasicAuth(); g.login != nil && *g.login != (login{username, password}) {
		w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	if r.ContentLength < 0 {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	}
	g.backend.ServeHTTP(w, r)
}

// Repository is a repository on a server, with a clone to push from.
type Repository struct {
	// URL is the address for clone and push.
	URL string

	t     testing.TB
	clone string
	login *login
}

// Repository creates an empty repository with the default branch main.
func (g *Git) Repository(t testing.TB, name string) *Repository {
	t.Helper()
	bare := filepath.Join(g.folder, name+".git")
	r := &Repository{URL: g.URL + "/" + name + ".git", t: t, clone: t.TempDir(), login: g.login}
	r.git("init", "--quiet", "--bare", "--initial-branch=main", bare)
	// without it only users authenticated by a web server may push
	r.git("--git-dir", bare, "config", "http.receivepack", "true")
	r.git("init", "--quiet", "--initial-branch=main")
	return r
}

// Push commits these files, by path, on top of a branch, pushes it, and returns the commit. A new branch begins at the
// last commit.
func (r *Repository) Push(branch string, files map[string]string) (commit string) {
	r.t.Helper()
	if r.try("checkout", "--quiet", branch) != nil {
		r.git("checkout", "--quiet", "-B", branch)
	}
	for path, text := range files {
		path = filepath.Join(r.clone, path)
		require.NoError(r.t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(r.t, os.WriteFile(path, []byte(text), 0o644))
	}
	r.git("add", "--all")
	r.git("commit", "--quiet", "--allow-empty", "--message", "a change of a test")
	r.git("push", "--quiet", r.URL, branch)
	return r.git("rev-parse", "HEAD")
}

// git runs Git in the clone and returns its output.
func (r *Repository) git(args ...string) string {
	r.t.Helper()
	out, err := r.command(args...).CombinedOutput()
	require.NoError(r.t, err, "git %v: %s", args, out)
	return strings.TrimSpace(string(out))
}

func (r *Repository) try(args ...string) error { return r.command(args...).Run() }

func (r *Repository) command(args ...string) *exec.Cmd {
	cmd := exec.Command("git", args...)
	cmd.Dir = r.clone
	cmd.Env = append(append(os.Environ(), gitEnv()...), r.login.gitConfig()...)
	return cmd
}

// gitConfig returns environment variables with which Git logs in.
func (l *login) gitConfig() []string {
	if l == nil {
		return nil
	}
	request := http.Request{Header: http.Header{}}
	request.SetBasicAuth(l.username, l.password)
	return []string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=http.extraHeader",
		"GIT_CONFIG_VALUE_0=Authorization: " + request.Header.Get("Authorization")}
}
