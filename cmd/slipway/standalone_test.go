package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/auth"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/test/harness"
)

// storeOn serves a package store like the process does.
func storeOn(t *testing.T, s settings.Settings) *listener {
	t.Helper()
	s.PackageListen, s.PackageMaxBytes = "127.0.0.1:0", 1<<20
	l, err := newPackageServer(Process{Settings: s, Registry: prometheus.NewRegistry(),
		Log:  slog.New(slog.DiscardHandler),
		Down: shutdowner(func() error { return nil })})
	require.NoError(t, err)
	require.NoError(t, l.start(t.Context()))
	t.Cleanup(func() { _ = l.stop(context.Background()) })
	return l
}

// write creates a file.
func write(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

// anArchive returns a tar archive with one file.
func anArchive(t *testing.T, content string) []byte {
	t.Helper()
	var text bytes.Buffer
	archive := tar.NewWriter(&text)
	require.NoError(t, archive.WriteHeader(&tar.Header{Name: "index.html", Mode: 0o644, Size: int64(len(content))}))
	_, err := archive.Write([]byte(content))
	require.NoError(t, err)
	require.NoError(t, archive.Close())
	return text.Bytes()
}

func TestPackagePush(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "packages")
	address := "http://" + storeOn(t, settings.Settings{PackageDir: folder}).Addr().String()
	token := filepath.Join(folder, "token")
	content := anArchive(t, "hello")
	sound, jar := write(t, "sound.tar", content), write(t, "shop.jar", []byte("a program"))
	push := func(file string, args ...string) (string, string, int) {
		return slipway(t, append([]string{"package", "push", file, "--store", address, "--token-file", token},
			args...)...)
	}
	for n, there := range []string{"no", "yes"} {
		out, errs, code := push(sound)
		require.Equal(t, app.ExitOK, code, errs)
		require.Regexp(t, `^SHA256 +BYTES +WAS THERE +URL\n[0-9a-f]{64} +2048 +`+there+` +`+address+
			`/packages/sha256/[0-9a-f]{64}\n$`, out, "push %d", n)
	}
	out, errs, code := push(sound, "-o", "json")
	require.Equal(t, app.ExitOK, code, errs)
	var pushed struct {
		SHA256, URL string
		WasThere    bool
	}
	require.NoError(t, json.Unmarshal([]byte(out), &pushed))
	require.True(t, pushed.WasThere)
	status, body := request(t, "GET", pushed.URL)
	require.Equal(t, http.StatusOK, status, "a pod downloads it without a token")
	require.Equal(t, string(content), body)

	_, errs, code = push(jar)
	require.Equal(t, app.ExitFailure, code)
	require.Contains(t, errs, "cannot unpack ")
	require.Contains(t, errs, "it looks like text; set unpack: false to keep the package as one file, and push it "+
		"with --unpack=false\n", "both hints are needed, and printed once")
	for why, file := range map[string]string{
		"an error page is never a package":           write(t, "shop.zip", []byte("<!doctype html><p>sign in")),
		"a truncated archive is not meant as a file": write(t, "half.tar", content[:600]),
	} {
		_, errs, code = push(file)
		require.Equal(t, app.ExitFailure, code, why)
		require.NotContains(t, errs, "unpack=false", why)
		require.NotContains(t, errs, "unpack: false", why)
	}
	_, errs, code = push(jar, "--unpack=false")
	require.Equal(t, app.ExitOK, code, errs)
	_, errs, code = push(sound, "--package-max-bytes", "2000")
	require.Equal(t, app.ExitFailure, code)
	require.Contains(t, errs, "sound.tar has 2048 bytes, more than the limit of 2000")
	_, errs, code = slipway(t, "package", "push", sound)
	require.Equal(t, app.ExitUsage, code)
	require.Contains(t, errs, "no package store: set --store or SLIPWAY_PACKAGE_STORE")
	_, errs, code = slipway(t, "package", "push", t.TempDir(), "--store", address)
	require.Equal(t, app.ExitFailure, code)
	require.Contains(t, errs, "is not a regular file")
	_, errs, code = slipway(t, "package", "push", write(t, "new.tar", anArchive(t, "other")), "--store", address)
	require.Equal(t, app.ExitFailure, code)
	require.Contains(t, errs, "answered 401 Unauthorized: it requires its token: name the token's file with "+
		"--package-store-token-file")
	require.Contains(t, errs, "--token-file")
	require.NotContains(t, errs, "Bearer", "users set a file, not a header")
	_, errs, code = slipway(t, "package", "push", sound, "--store", address, "--token-file",
		write(t, "other-token", []byte("another token, of some length")))
	require.Equal(t, app.ExitFailure, code)
	require.Contains(t, errs, "answered 401 Unauthorized: the token is wrong: the file of --package-store-token-file "+
		"has to contain")
}

func TestPackageStore_ReloadsToken(t *testing.T) {
	t.Parallel()
	first, second := strings.Repeat("first", 7), strings.Repeat("second", 6)
	token := write(t, "token", []byte(first))
	address := "http://" + storeOn(t, settings.Settings{PackageDir: t.TempDir(),
		PackageTokenFile: token}).Addr().String() + "/packages"
	require.NoFileExists(t, filepath.Join(filepath.Dir(token), "packages", "token"))
	list := func(token string) int {
		status, _ := request(t, "GET", address, "Authorization: Bearer "+token)
		return status
	}
	require.Equal(t, http.StatusOK, list(first))
	require.Equal(t, http.StatusUnauthorized, list(second))
	require.NoError(t, os.WriteFile(token, []byte(second), 0o600))
	require.Equal(t, http.StatusOK, list(second), "without a restart")
	require.Equal(t, http.StatusUnauthorized, list(first))
	require.NoError(t, os.WriteFile(token, nil, 0o600))
	require.Equal(t, http.StatusServiceUnavailable, list(second), "a removed token is rejected")
	require.Equal(t, http.StatusServiceUnavailable, list(""), "an empty token is rejected")
}

func TestPackageStore_ServesHealthWithTLS(t *testing.T) {
	t.Parallel()
	ours := harness.NewAuthority(t)
	cert, key := ours.Issue()
	l := storeOn(t, settings.Settings{PackageDir: t.TempDir(), PackageCertFile: cert, PackageKeyFile: key})
	trusting := http.Client{Transport: &http.Transport{TLSClientConfig: ours.Client(nil)}}
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		answer, err := trusting.Get("https://" + l.Addr().String() + path)
		require.NoError(t, err, path)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusOK, answer.StatusCode, path)
	}
	_, err := Process{}.ownTLS(storeName, "package", cert, "")
	require.ErrorContains(t, err, "--package-cert-file and --package-key-file must be set together")
}

// TestPackageStore_RefusesForeignHosts: a page whose name resolves to this machine reads neither packages nor metrics.
// Pods reach the store by the name of its Service.
func TestPackageStore_RefusesForeignHosts(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	address := "http://" + storeOn(t, settings.Settings{PackageDir: folder,
		AllowedHosts: []string{"packages.example"}}).Addr().String()
	token, err := os.ReadFile(filepath.Join(folder, "token"))
	require.NoError(t, err)
	right := "Authorization: Bearer " + string(token)
	missing := "/packages/sha256/" + strings.Repeat("0", 64)
	for path, want := range map[string]int{"/packages": http.StatusOK, missing: http.StatusNotFound,
		"/metrics": http.StatusOK, "/readyz": http.StatusOK} {
		for _, header := range []string{"Host: evil.example:8085", "Host: svc", "Host: a.svc.evil.example",
			"Origin: http://evil.example", "Sec-Fetch-Site: cross-site"} {
			status, body := request(t, "GET", address+path, right, header)
			require.Equal(t, http.StatusForbidden, status, "%s, %s: %s", path, header, body)
		}
		for _, host := range []string{"packages.example:8085", "slipway-packages.slipway.svc:8085",
			"slipway-packages.slipway.svc.cluster.local", "localhost:1"} {
			status, body := request(t, "GET", address+path, right, "Host: "+host)
			require.Equal(t, want, status, "%s of host %s: %s", path, host, body)
		}
	}
	_, body := request(t, "GET", address+"/packages", right, "Host: evil.example:8085")
	require.Contains(t, body, "--allowed-hosts")
}

// TestWrongTokensOfStandaloneServers_GetRefused: the package store and the codec server answer 429 like the API.
func TestWrongTokensOfStandaloneServers_GetRefused(t *testing.T) {
	t.Parallel()
	process := func(s settings.Settings) Process {
		failures, err := auth.NewFailures(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		require.NoError(t, err)
		return Process{Settings: s, Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
			Failures: failures, Down: shutdowner(func() error { return nil })}
	}
	token, keys := write(t, "token", []byte(secret)), t.TempDir()
	key := base64.StdEncoding.EncodeToString(make([]byte, 32))
	require.NoError(t, os.WriteFile(filepath.Join(keys, "one"), []byte(key), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(keys, "current"), []byte("one"), 0o600))
	store, err := newPackageServer(process(settings.Settings{PackageListen: "127.0.0.1:0", PackageMaxBytes: 1 << 20,
		PackageDir: t.TempDir(), PackageTokenFile: token}))
	require.NoError(t, err)
	codec, err := newCodecServer(process(settings.Settings{CodecListen: "127.0.0.1:0", CodecTokenFile: token,
		TemporalCodecKeyDir: keys}))
	require.NoError(t, err)
	for path, l := range map[string]*listener{"/packages": store, "/decode": codec} {
		require.NoError(t, l.start(t.Context()))
		t.Cleanup(func() { _ = l.stop(context.Background()) })
		method := map[string]string{"/packages": http.MethodGet, "/decode": http.MethodPost}[path]
		ask := func(token string) *http.Response {
			r, err := http.NewRequestWithContext(t.Context(), method, "http://"+l.Addr().String()+path,
				strings.NewReader(`{"payloads":[]}`))
			require.NoError(t, err)
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set("Content-Type", "application/json")
			answer, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			return answer
		}
		for n := range 25 {
			answer := ask(fmt.Sprint("guess-", n))
			if n < 20 {
				require.Equal(t, http.StatusUnauthorized, answer.StatusCode, "%s %d", path, n)
				continue
			}
			require.Equal(t, http.StatusTooManyRequests, answer.StatusCode, "%s %d", path, n)
			require.Equal(t, "60", answer.Header.Get("Retry-After"), path)
		}
		require.Equal(t, http.StatusOK, ask(secret).StatusCode, "%s: the right token passes at any time", path)
	}
}

// TestPackagePush_TrustsCAOfStore pushes to a store whose certificate and then whose CA change while it runs.
func TestPackagePush_TrustsCAOfStore(t *testing.T) {
	t.Parallel()
	first, second := harness.NewAuthority(t), harness.NewAuthority(t)
	cert, key := first.Issue()
	folder := t.TempDir()
	address := "https://" + storeOn(t, settings.Settings{PackageDir: folder, PackageCertFile: cert,
		PackageKeyFile: key}).Addr().String()
	file := write(t, "sound.tar", anArchive(t, "hello"))
	push := func(args ...string) (errs string, code int) {
		_, errs, code = slipway(t, append([]string{"package", "push", file, "--store", address, "--token-file",
			filepath.Join(folder, "token")}, args...)...)
		return errs, code
	}
	errs, code := push()
	require.NotEqual(t, app.ExitOK, code)
	require.Contains(t, errs, "certificate signed by unknown authority")
	errs, code = push("--package-store-ca-file", first.File)
	require.Equal(t, app.ExitOK, code, errs)

	newCert, newKey := second.Issue()
	for to, from := range map[string]string{cert: newCert, key: newKey} {
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(to, text, 0o600))
	}
	require.Eventually(t, func() bool {
		_, code = push("--package-store-ca-file", second.File)
		return code == app.ExitOK
	}, time.Minute, 100*time.Millisecond, "the store reads its certificate again")
	errs, code = push("--package-store-ca-file", key)
	require.NotEqual(t, app.ExitOK, code)
	require.Contains(t, errs, "holds no certificate in PEM form")
}

func TestTempBytes_TakeAPackage(t *testing.T) {
	t.Parallel()
	require.Equal(t, int64(20), tempBytes(settings.Settings{PackageMaxBytes: 10, PackageTempBytes: 20}))
	require.Equal(t, int64(10), tempBytes(settings.Settings{PackageMaxBytes: 10, PackageTempBytes: 9}))
}

func TestPackageServe_StartsAndStops(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := taken.Addr().String()
	s := settings.Settings{PackageListen: address, PackageDir: folder, PackageMaxBytes: 1 << 20, LogLevel: "error",
		ShutdownTimeout: time.Minute}
	require.ErrorContains(t, runPackageServe(t.Context(), s), "choose another address with --package-listen",
		"a port in use is reported immediately")
	require.NoError(t, taken.Close())
	ctx, end := context.WithCancel(t.Context())
	defer end()
	ended := make(chan error, 1)
	go func() { ended <- runPackageServe(ctx, s) }()
	require.Eventually(t, func() bool {
		answer, err := http.Get("http://" + address + "/readyz")
		return err == nil && answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
	}, time.Minute, 10*time.Millisecond)
	require.ErrorContains(t, runPackageServe(ctx, s), "another process serves the packages in "+folder)
	end()
	require.NoError(t, <-ended, "it stops with its context, without Temporal and without a cluster")
	_, errs, code := slipway(t, "package", "serve")
	require.Equal(t, app.ExitUsage, code)
	require.Contains(t, errs, "set --package-dir or --package-bucket")
	for says, args := range map[string][]string{
		"mutually exclusive":            {"--package-dir", t.TempDir(), "--package-bucket", "s3://packages"},
		"requires --package-token-file": {"--package-bucket", "s3://packages"},
		"must be set together":          {"--package-dir", t.TempDir(), "--package-cert-file", "cert.pem"},
	} {
		_, errs, code := slipway(t, append([]string{"package", "serve", "--package-listen", "127.0.0.1:0"}, args...)...)
		require.Equal(t, app.ExitUsage, code, "invalid settings are a usage error: %s", errs)
		require.Contains(t, errs, says)
	}
}

func TestPackageStore_RejectsInvalidStorage(t *testing.T) {
	t.Parallel()
	for says, s := range map[string]settings.Settings{
		"mutually exclusive":                             {PackageDir: t.TempDir(), PackageBucket: "s3://packages"},
		"requires --package-token-file":                  {PackageBucket: "s3://packages"},
		"--package-bucket: \"packages\" is not a bucket": {PackageBucket: "packages", PackageTokenFile: "token"},
		"--package-bucket: the endpoint": {PackageBucket: "s3://packages", PackageTokenFile: "token",
			PackageS3Endpoint: "http://127.0.0.1:1/packages"},
	} {
		_, err := newPackageServer(Process{Settings: s, Log: slog.New(slog.DiscardHandler)})
		require.ErrorContains(t, err, says)
	}
}

func TestDevUsesItsOwnPackageStore(t *testing.T) {
	t.Parallel()
	serving := settings.Settings{PackageListen: "127.0.0.1:8085", PackageDir: "d"}
	for name, c := range map[string]struct {
		reason       string
		change       func(*settings.Settings)
		store, token string
	}{
		"Serves": {"its worker uses its store", func(*settings.Settings) {}, "http://127.0.0.1:8085",
			filepath.Join("d", "token")},
		"TLS": {"with the same scheme", func(s *settings.Settings) {
			s.PackageCertFile = "c"
		}, "https://127.0.0.1:8085", filepath.Join("d", "token")},
		"Token": {"with the same token", func(s *settings.Settings) {
			s.PackageTokenFile = "t"
		}, "http://127.0.0.1:8085", "t"},
		"Another": {"unless another store is set", func(s *settings.Settings) {
			s.PackageStore = "http://a"
		}, "http://a", ""},
		"None": {"without a folder there is no store", func(s *settings.Settings) { s.PackageDir = "" }, "", ""},
		"Bucket": {"a bucket works too", func(s *settings.Settings) {
			s.PackageDir, s.PackageBucket, s.PackageTokenFile = "", "s3://b", "t"
		},
			"http://127.0.0.1:8085", "t"},
		"AnyPort": {"pods need a fixed port", func(s *settings.Settings) { s.PackageListen = "127.0.0.1:0" }, "", ""},
	} {
		s := serving
		c.change(&s)
		s = withOwnStore(s)
		require.Equal(t, []string{c.store, c.token}, []string{s.PackageStore, s.PackageStoreTokenFile}, "%s: %s", name,
			c.reason)
	}
}
