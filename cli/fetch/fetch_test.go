package fetch_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/cli"
	"slipway.io/slipway/cli/app"
)

const asCommand = "FETCH_TEST_AS_COMMAND"

// TestMain lets the test binary act as the command, for tests that kill it.
func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(cli.Run(context.Background(), app.New(os.Stdin, os.Stdout, os.Stderr), os.Args[1:]))
	}
	os.Unsetenv("SLIPWAY_FETCH_URLS")
	os.Exit(m.Run())
}

// outcome is the result of a run of the command.
type outcome struct {
	out, err, termination string
	code                  int
	pauses                []time.Duration
}

// pod is the volume of a pod. Each run checks that nothing else in its folder was changed.
type pod struct {
	t   *testing.T
	dir string
	ctx context.Context
}

func newPod(t *testing.T) *pod {
	t.Helper()
	p := &pod{t: t, dir: t.TempDir(), ctx: t.Context()}
	require.NoError(t, os.Mkdir(p.path("volume"), 0o777))
	require.NoError(t, os.WriteFile(p.path("secret"), []byte("secret"), 0o600))
	t.Cleanup(func() {
		// Packages may contain folders without write permission, whose files only root could delete.
		_ = filepath.WalkDir(p.path("volume"), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				return os.Chmod(path, 0o700)
			}
			return err
		})
	})
	return p
}

func (p *pod) path(name string) string { return filepath.Join(p.dir, name) }

// fetch runs the command with a clock that advances only with the command's pauses.
func (p *pod) fetch(args ...string) outcome {
	p.t.Helper()
	var out, errs bytes.Buffer
	var got outcome
	now := time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)
	a := &app.App{In: strings.NewReader(""), Out: &out, Err: &errs, Output: app.Table, Now: func() time.Time {
		return now
	}}
	a.Screen = func() (int, int, bool) { return 0, 0, false }
	a.Wait = func(_ context.Context, d time.Duration) { got.pauses, now = append(got.pauses, d), now.Add(d) }
	args = append([]string{"fetch", "--to", p.path("volume"), "--termination-log", p.path("termination"), "--allow",
		"127.0.0.1"}, args...)
	got.code = cli.Run(p.ctx, a, args)
	got.out, got.err = out.String(), errs.String()
	termination, _ := os.ReadFile(p.path("termination"))
	got.termination = string(termination)
	p.onlyExpected()
	return got
}

// onlyExpected checks that nothing was written outside the volume and that no incomplete files are left.
func (p *pod) onlyExpected() {
	p.t.Helper()
	for name := range names(p.t, p.dir) {
		require.Contains(p.t, []string{"volume", "secret", "termination"}, name,
			"nothing is written outside the volume")
	}
	for name := range names(p.t, p.path("volume")) {
		require.Contains(p.t, []string{"content", ".slipway-content.json"}, name, "no incomplete files are left")
	}
	secret, err := os.ReadFile(p.path("secret"))
	require.NoError(p.t, err)
	require.Equal(p.t, "secret", string(secret))
}

func names(t *testing.T, folder string) map[string]bool {
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	found := map[string]bool{}
	for _, entry := range entries {
		found[entry.Name()] = true
	}
	return found
}

// content returns the files that the service's container would see; nil if there are none.
func (p *pod) content() map[string]string {
	folder := p.path("volume/content")
	if _, err := os.Lstat(folder); err != nil {
		return nil
	}
	found := map[string]string{}
	require.NoError(p.t, filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(folder, path)
		found[name] = info.Mode().String()
		if d.Type().IsRegular() {
			text, err := os.ReadFile(path)
			found[name] += " " + string(text)
			return err
		}
		return nil
	}))
	return found
}

// web serves paths by functions and counts the requests.
type web struct {
	*httptest.Server
	asked map[string]int
}

func serve(t *testing.T, routes map[string]http.HandlerFunc) *web {
	w := &web{asked: map[string]int{}}
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.asked[r.URL.Path]++
		if route, known := routes[r.URL.Path]; known {
			route(rw, r)
			return
		}
		http.NotFound(rw, r)
	}))
	t.Cleanup(w.Close)
	return w
}

func bytesOf(content []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) }
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

func tarOf(t *testing.T, headers ...tar.Header) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range headers {
		content := h.PAXRecords["test.content"]
		h.PAXRecords, h.Size = nil, int64(len(content))
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		require.NoError(t, w.WriteHeader(&h))
		_, err := w.Write([]byte(content))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}

func text(content string) map[string]string { return map[string]string{"test.content": content} }

func gzipOf(content []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(content)
	_ = w.Close()
	return out.Bytes()
}

// shop returns a package with a version.
func shop(t *testing.T, version string) []byte {
	return gzipOf(tarOf(t,
		tar.Header{Name: "bin/", Typeflag: tar.TypeDir, Mode: 0o755},
		tar.Header{Name: "bin/run", Mode: 0o755, PAXRecords: text("run " + version)},
		tar.Header{Name: "locked/", Typeflag: tar.TypeDir, Mode: 0o555},
		tar.Header{Name: "locked/readme", Mode: 0o644, PAXRecords: text("read me")}))
}

func shopContent(version string) map[string]string {
	return map[string]string{".": "drwxr-xr-x", "bin": "drwxr-xr-x", "bin/run": "-rwxr-xr-x run " + version,
		"locked":        "dr-xr-xr-x",
		"locked/readme": "-rw-r--r-- read me"}
}

func TestFetch(t *testing.T) {
	t.Parallel()
	one, two := shop(t, "1"), shop(t, "2")
	w := serve(t, map[string]http.HandlerFunc{"/1": bytesOf(one), "/2": bytesOf(two)})
	p := newPod(t)

	got := p.fetch("--sha256", digest(one), "--url", w.URL+"/1")
	require.Equal(t, app.ExitOK, got.code, got.err)
	require.Equal(t, shopContent("1"), p.content())
	require.Contains(t, got.out, "4 entries with 12 bytes, from a package in format tar.gz")
	require.Empty(t, got.termination)

	got = p.fetch("--sha256", strings.ToUpper(digest(one)), "--url", w.URL+"/1")
	require.Equal(t, app.ExitOK, got.code, got.err)
	require.Contains(t, got.out, "already has the package")
	require.Equal(t, 1, w.asked["/1"], "existing content is not downloaded again")

	got = p.fetch("--sha256", digest(two), "--url", w.URL+"/2")
	require.Equal(t, app.ExitOK, got.code, got.err)
	require.Equal(t, shopContent("2"), p.content(), "another package replaces the first")
}

func TestFetch_KeepsPackageAsFile(t *testing.T) {
	t.Parallel()
	jar := []byte("PK\x03\x04 not a valid archive")
	w := serve(t, map[string]http.HandlerFunc{"/shop.jar": bytesOf(jar)})
	p := newPod(t)
	for _, name := range []string{"app.jar", "other.jar"} {
		got := p.fetch("--sha256", digest(jar), "--url", w.URL+"/shop.jar", "--file", name)
		require.Equal(t, app.ExitOK, got.code, got.err)
		require.Equal(t, map[string]string{".": "drwxr-xr-x", name: "-rw-r--r-- " + string(jar)}, p.content(),
			"all users may read it")
	}
}

func TestFetch_TriesAllURLs(t *testing.T) {
	t.Parallel()
	one, two := shop(t, "1"), shop(t, "2")
	failing := 3
	routes := map[string]http.HandlerFunc{
		"/good": bytesOf(one), "/other": bytesOf(two),
		"/down": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "", http.StatusServiceUnavailable) },
		"/later": func(w http.ResponseWriter, r *http.Request) {
			if failing--; failing >= 0 {
				http.Error(w, "", http.StatusBadGateway)
				return
			}
			bytesOf(one)(w, r)
		},
		"/broken": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(one)))
			_, _ = w.Write(one[:len(one)/2])
		},
		"/moved": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/good", http.StatusFound) },
		"/away": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/latest/meta-data/", http.StatusFound)
		},
	}
	for name, c := range map[string]struct {
		reason string
		urls   []string
		want   []string
		code   int
		pauses int
	}{
		"Down": {"an unavailable server causes no pause while there is another URL", []string{"/down", "/good"},
			nil, app.ExitOK, 0},
		"Absent": {"neither does a server without the package", []string{"/absent", "/good"}, nil, app.ExitOK, 0},
		"Other": {"another package is rejected, and the next URL is tried", []string{"/other", "/good"}, nil,
			app.ExitOK, 0},
		"Broken": {"an incomplete download is discarded", []string{"/broken", "/good"}, nil, app.ExitOK, 0},
		"Moved":  {"redirects are followed", []string{"/moved"}, nil, app.ExitOK, 0},
		"Later": {"temporary failures are retried, and URLs that failed permanently are not",
			[]string{"/other", "/later"}, nil, app.ExitOK, 3},
		"AllOther": {"another package at all URLs is a failure", []string{"/other", "/other"},
			[]string{"/other?…: the package has changed: its digest is sha256:" + digest(two)}, app.ExitFailure, 0},
		"AllAbsent": {"each URL is named with its reason", []string{"/absent", "/lost"},
			[]string{"/absent?…: ", "/lost?…: ", "404"}, app.ExitFailure, 0},
		"Away": {"a redirect to the cloud's metadata service is rejected", []string{"/away"},
			[]string{"169.254.169.254"}, app.ExitFailure, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := serve(t, routes)
			p := newPod(t)
			args := []string{"--sha256", digest(one)}
			for _, path := range c.urls {
				args = append(args, "--url", w.URL+path+"?signature=hidden")
			}
			got := p.fetch(args...)
			require.Equal(t, c.code, got.code, "%s: %s", c.reason, got.err)
			require.Len(t, got.pauses, c.pauses, c.reason)
			require.NotContains(t, got.out+got.err+got.termination, "hidden", "queries are not shown")
			if c.code == app.ExitOK {
				require.Equal(t, shopContent("1"), p.content(), c.reason)
				require.Empty(t, got.termination)
				return
			}
			require.Nil(t, p.content(), c.reason)
			for _, want := range c.want {
				require.Contains(t, got.err, want, c.reason)
				require.Contains(t, got.termination, want, "Kubernetes shows the reason")
			}
			require.NotContains(t, got.termination, "\n", "it is one line")
		})
	}
}

func TestFetch_GivesUp_AfterPatience(t *testing.T) {
	t.Parallel()
	w := serve(t, map[string]http.HandlerFunc{"/down": func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "", http.StatusServiceUnavailable)
	}})
	p := newPod(t)
	got := p.fetch("--sha256", digest(nil), "--url", w.URL+"/down", "--patience", "1m")
	require.Equal(t, app.ExitFailure, got.code)
	require.Contains(t, got.termination, "503")
	total := time.Duration(0)
	for _, pause := range got.pauses {
		total += pause
	}
	require.Greater(t, total, 30*time.Second)
	require.LessOrEqual(t, total, time.Minute)
}

// The old content remains until the new package is complete and verified.
func TestFetch_KeepsOldContent_WhenItFails(t *testing.T) {
	t.Parallel()
	one := shop(t, "1")
	w := serve(t, map[string]http.HandlerFunc{"/1": bytesOf(one), "/page": bytesOf([]byte("<html>"))})
	p := newPod(t)
	require.Equal(t, app.ExitOK, p.fetch("--sha256", digest(one), "--url", w.URL+"/1").code)
	require.Equal(t, app.ExitFailure, p.fetch("--sha256", digest([]byte("<html>")), "--url", w.URL+"/page").code)
	require.Equal(t, shopContent("1"), p.content())
}

func TestFetch_ReadsURLs_FromEnvironment(t *testing.T) {
	one := shop(t, "1")
	w := serve(t, map[string]http.HandlerFunc{"/1": bytesOf(one)})
	t.Setenv("SLIPWAY_FETCH_URLS", w.URL+"/absent\n\n"+w.URL+"/1\n")
	p := newPod(t)
	got := p.fetch("--sha256", digest(one))
	require.Equal(t, app.ExitOK, got.code, got.err)
	require.Equal(t, 1, w.asked["/absent"], "in their order")
	require.Equal(t, shopContent("1"), p.content())
}

// TestFetch_TrustsCAOfStore_ForStoreOnly: the CA in the pod template is for the package store.
func TestFetch_TrustsCAOfStore_ForStoreOnly(t *testing.T) {
	t.Parallel()
	one := shop(t, "1")
	store := httptest.NewTLSServer(bytesOf(one))
	defer store.Close()
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: store.Certificate().Raw}))
	fetch := func(args ...string) (outcome, *pod) {
		p := newPod(t)
		return p.fetch(append(args, "--sha256", digest(one), "--url", store.URL+"/packages/sha256/"+digest(one))...), p
	}
	got, _ := fetch("--trusted", store.URL)
	require.NotEqual(t, app.ExitOK, got.code)
	require.Contains(t, got.err, "certificate signed by unknown authority")

	got, p := fetch("--trusted", store.URL, "--trusted-ca", ca)
	require.Equal(t, app.ExitOK, got.code, got.err)
	require.Equal(t, shopContent("1"), p.content())
	got, _ = fetch("--trusted-ca", ca)
	require.NotEqual(t, app.ExitOK, got.code, "a source with a certificate of this CA")
	require.Contains(t, got.err, "certificate signed by unknown authority")

	got, _ = fetch("--trusted", store.URL, "--trusted-ca", "no certificate")
	require.Equal(t, app.ExitUsage, got.code)
	require.Contains(t, got.err, "--trusted-ca holds no certificate in PEM form")
}

func TestFetchSendsCredentials(t *testing.T) {
	t.Parallel()
	one := shop(t, "1")
	closed := func(w http.ResponseWriter, r *http.Request) {
		if name, password, _ := r.BasicAuth(); name != "me" || password != "pass" {
			http.Error(w, "", http.StatusUnauthorized)
			return
		}
		bytesOf(one)(w, r)
	}
	w := serve(t, map[string]http.HandlerFunc{"/1": closed, "/open": bytesOf(one)})
	secret := func(t *testing.T, hosts string) string {
		folder := t.TempDir()
		// The kubelet mounts each key of a Secret as a link into a folder that it replaces atomically.
		require.NoError(t, os.Mkdir(filepath.Join(folder, "..2026"), 0o755))
		require.NoError(t, os.Symlink("..2026", filepath.Join(folder, "..data")))
		for key, value := range map[string]string{"username": "me", "password": "pass", "hosts": hosts} {
			require.NoError(t, os.WriteFile(filepath.Join(folder, "..2026", key), []byte(value), 0o400))
			require.NoError(t, os.Symlink("..data/"+key, filepath.Join(folder, key)))
		}
		return folder
	}
	for name, c := range map[string]struct {
		reason, folder, url, want string
	}{
		"Named":    {"the Secret names the host", secret(t, w.URL), "/1", ""},
		"NotNamed": {"the Secret names another", secret(t, "http://other.example.com"), "/1", "401"},
		"Empty": {"for a missing Secret the folder is empty, and the error says so", t.TempDir(), "/1",
			"no credentials were sent: "},
		"Unneeded": {"a download that needs no credentials still works", t.TempDir(), "/open", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t)
			got := p.fetch("--sha256", digest(one), "--url", w.URL+c.url, "--credentials", c.folder)
			require.NotContains(t, got.err+got.termination, "pass", c.reason)
			if c.want != "" {
				require.Equal(t, app.ExitFailure, got.code, c.reason)
				require.Contains(t, got.termination, c.want, c.reason)
				return
			}
			require.Equal(t, app.ExitOK, got.code, "%s: %s", c.reason, got.err)
		})
	}
}

func TestFetch_RejectsHostileArchives(t *testing.T) {
	t.Parallel()
	file := func(name string) tar.Header { return tar.Header{Name: name, Mode: 0o644, PAXRecords: text("evil")} }
	link := func(name, target string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target}
	}
	var collision bytes.Buffer
	z := zip.NewWriter(&collision)
	for _, name := range []string{"A", "a"} {
		_, err := z.Create(name)
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	bomb := tar.Header{Name: "zeros", Mode: 0o644, PAXRecords: text(strings.Repeat("\x00", 2<<20))}
	for name, c := range map[string]struct {
		reason  string
		archive []byte
		want    string
	}{
		"Traversal": {"a name with ..", tarOf(t, file("good"), file("../secret")),
			`entry "../secret" leaves the folder`},
		"Absolute": {"an absolute path", tarOf(t, file("/tmp/evil")), "absolute path"},
		"LinkOut":  {"a link to outside the folder", tarOf(t, link("l", "../../secret")), "leaves the folder"},
		"BelowLink": {"a file below a link", tarOf(t, link("l", ".."), file("l/evil")),
			`lies below "l", which is a symbolic link`},
		"HardLink": {"a hard link to a file outside the archive",
			tarOf(t, tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "../../secret"}), "is a hard link to"},
		"Device": {"a device", tarOf(t, tar.Header{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}),
			`entry "null" is a device`},
		"Bomb":      {"2 KiB that become 2 MiB", gzipOf(tarOf(t, bomb)), "more than the limit of 1048576"},
		"Nested":    {"compressed twice", gzipOf(shop(t, "1")), "contain a tar archive: it looks like gzip data"},
		"Truncated": {"a truncated archive", shop(t, "1")[:100], "is truncated"},
		"Type": {"a web page instead of a package", []byte("<!doctype html><title>sign in"),
			"it looks like an HTML page"},
		"Case": {"two files of one name", collision.Bytes(), "only by case"},
		"Locked": {"a folder without permissions is removed",
			tarOf(t, tar.Header{Name: "d/", Typeflag: tar.TypeDir}, file("d/f"), file("d/f")),
			"is in the archive twice"},
	} {
		t.Run(name, func(t *testing.T) {
			w := serve(t, map[string]http.HandlerFunc{"/p": bytesOf(c.archive)})
			p := newPod(t)
			got := p.fetch("--sha256", digest(c.archive), "--url", w.URL+"/p", "--max-unpacked-bytes", "1048576")
			require.Equal(t, app.ExitFailure, got.code, c.reason)
			require.Contains(t, got.err, c.want, c.reason)
			require.Contains(t, got.termination, c.want, c.reason)
			require.Contains(t, got.termination, "sha256:"+digest(c.archive), "the package is named")
			require.Nil(t, p.content(), c.reason)
		})
	}
}

func TestFetch_RejectsWrongUsage(t *testing.T) {
	t.Parallel()
	sum := digest(nil)
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"NoDigest":    {[]string{"--url", "http://127.0.0.1/"}, `required flag(s) "sha256" not set`},
		"ShortDigest": {[]string{"--sha256", sum[:40], "--url", "http://127.0.0.1/"}, "must be 64 hexadecimal digits"},
		"NoURL":       {[]string{"--sha256", sum}, "no download URL: set --url or SLIPWAY_FETCH_URLS"},
		"Path": {[]string{"--sha256", sum, "--url", "http://127.0.0.1/", "--file", "../evil"},
			"is not a file name"},
		"Above": {[]string{"--sha256", sum, "--url", "http://127.0.0.1/", "--file", ".."}, "is not a file name"},
		"Allow": {[]string{"--sha256", sum, "--url", "http://127.0.0.1/", "--allow", "http://x/"}, "--allow: "},
		"Limit": {[]string{"--sha256", sum, "--url", "http://127.0.0.1/", "--max-entries", "0"},
			"must be greater than 0"},
	} {
		t.Run(name, func(t *testing.T) {
			got := newPod(t).fetch(c.args...)
			require.Equal(t, app.ExitUsage, got.code)
			require.Contains(t, got.err, c.want)
		})
	}
}

// start runs the command as a process, with the URL in the environment.
func (p *pod) start(url, sum string) *exec.Cmd {
	p.t.Helper()
	command := exec.Command(os.Args[0], "fetch", "--to", p.path("volume"), "--allow", "127.0.0.1", "--sha256", sum)
	command.Env = append(os.Environ(), asCommand+"=1", "SLIPWAY_FETCH_URLS="+url)
	require.NoError(p.t, command.Start())
	p.t.Cleanup(func() {
		_ = command.Process.Kill()
		_, _ = command.Process.Wait()
	})
	return command
}

// If the process is killed, the container is restarted with the same volume.
func TestFetch_Recovers_AfterKill(t *testing.T) {
	t.Parallel()
	var many []tar.Header
	want := map[string]string{".": "drwxr-xr-x"}
	for i := range 1_500 {
		name := fmt.Sprintf("f%05d", i)
		many = append(many, tar.Header{Name: name, Mode: 0o644, PAXRecords: text(name)})
		want[name] = "-rw-r--r-- " + name
	}
	large := tarOf(t, many...)
	half := make(chan struct{})
	first := true
	w := serve(t, map[string]http.HandlerFunc{"/large": bytesOf(large),
		"/half": func(w http.ResponseWriter, r *http.Request) {
			if !first {
				bytesOf(large)(w, r)
				return
			}
			first = false
			_, _ = w.Write(large[:len(large)/2])
			w.(http.Flusher).Flush()
			close(half)
			<-r.Context().Done()
		}})
	kill := func(command *exec.Cmd) {
		require.NoError(t, command.Process.Kill())
		_, err := command.Process.Wait()
		require.NoError(t, err)
	}

	t.Run("while it downloads", func(t *testing.T) {
		p := newPod(t)
		command := p.start(w.URL+"/half", digest(large))
		<-half
		kill(command)
		require.Nil(t, p.content())
		require.Equal(t, map[string]bool{".slipway-fetch": true}, names(t, p.path("volume")))
		got := p.fetch("--sha256", digest(large), "--url", w.URL+"/half")
		require.Equal(t, app.ExitOK, got.code, got.err)
		require.Equal(t, want, p.content())
	})
	t.Run("while it unpacks", func(t *testing.T) {
		p := newPod(t)
		command := p.start(w.URL+"/large", digest(large))
		require.Eventually(t, func() bool {
			unpacked, err := os.ReadDir(p.path("volume/.slipway-fetch/content"))
			return err == nil && len(unpacked) > 100
		}, time.Minute, time.Millisecond)
		kill(command)
		require.Nil(t, p.content(), "content appears only when it is complete")
		got := p.fetch("--sha256", digest(large), "--url", w.URL+"/large")
		require.Equal(t, app.ExitOK, got.code, got.err)
		require.Equal(t, want, p.content())
	})
	t.Run("between content and its marker", func(t *testing.T) {
		p := newPod(t)
		require.Equal(t, app.ExitOK, p.fetch("--sha256", digest(large), "--url", w.URL+"/large").code)
		require.NoError(t, os.Remove(p.path("volume/.slipway-content.json")))
		require.NoError(t, os.Remove(p.path("volume/content/f00000")))
		got := p.fetch("--sha256", digest(large), "--url", w.URL+"/large")
		require.Equal(t, app.ExitOK, got.code, got.err)
		require.Equal(t, want, p.content(), "content without a marker is written again")
	})
}

// When a pod is deleted, its containers are stopped: no incomplete files are left, and no failure is reported.
func TestFetch_LeavesNothing_WhenInterrupted(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	ctx, cancel := context.WithCancel(t.Context())
	p.ctx = ctx
	w := serve(t, map[string]http.HandlerFunc{"/slow": func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	}})
	got := p.fetch("--sha256", digest(nil), "--url", w.URL+"/slow")
	require.Equal(t, app.ExitSignal, got.code)
	require.Empty(t, got.termination)
}

// A node crash may corrupt files written before it, and the volume survives the crash.
func TestFetch_RewritesContent_AfterNodeReboot(t *testing.T) {
	t.Parallel()
	one := shop(t, "1")
	w := serve(t, map[string]http.HandlerFunc{"/1": bytesOf(one)})
	p := newPod(t)
	require.Equal(t, app.ExitOK, p.fetch("--sha256", digest(one), "--url", w.URL+"/1").code)
	require.NoError(t, os.WriteFile(p.path("volume/content/bin/run"), nil, 0o644))
	marker := fmt.Sprintf(`{"sha256":%q,"boot":"another"}`, digest(one))
	require.NoError(t, os.WriteFile(p.path("volume/.slipway-content.json"), []byte(marker), 0o644))
	require.Equal(t, app.ExitOK, p.fetch("--sha256", digest(one), "--url", w.URL+"/1").code)
	require.Equal(t, shopContent("1"), p.content())
}
