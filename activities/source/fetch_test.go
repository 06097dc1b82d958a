package source

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"slipway.io/slipway/activities/source/packages"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/source"
)

func zipOf(t *testing.T, name, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	entry, err := w.Create(name)
	require.NoError(t, err)
	_, err = io.WriteString(entry, text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// packageServer serves one package, and counts the responses that carried its body.
type packageServer struct {
	*httptest.Server
	mu      sync.Mutex
	content []byte
	status  int
	gets    int
	etag    string
	queries []string
	headers []http.Header
}

func newPackageServer(t *testing.T, content []byte) *packageServer {
	s := &packageServer{content: content, status: http.StatusOK, etag: `"1"`}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.queries, s.headers = append(s.queries, r.URL.RawQuery), append(s.headers, r.Header)
		if s.status != http.StatusOK {
			w.WriteHeader(s.status)
			return
		}
		if s.etag != "" {
			w.Header().Set("ETag", s.etag)
		}
		if r.Header.Get("If-None-Match") == s.etag && s.etag != "" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		s.gets++
		_, _ = w.Write(s.content)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *packageServer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// memoryStore is a package store in memory.
type memoryStore struct {
	packages map[string][]byte
	used     map[string]time.Time
	down     error
}

func (s *memoryStore) List(_ context.Context, limit int, after string) (items []packages.Package, next string,
	err error) {
	for _, sha256 := range slices.Sorted(maps.Keys(s.packages)) {
		switch {
		case sha256 <= after:
		case len(items) == limit:
			return items, items[limit-1].SHA256, s.down
		default:
			items = append(items, packages.Package{SHA256: sha256, StoredAt: s.used[sha256], UsedAt: s.used[sha256]})
		}
	}
	return items, "", s.down
}

func (s *memoryStore) Delete(_ context.Context, sha256 string, unusedSince time.Time) error {
	switch _, has := s.packages[sha256]; {
	case !has:
		return packages.ErrAbsent
	case s.used[sha256].After(unusedSince):
		return packages.ErrUsed
	}
	delete(s.packages, sha256)
	return s.down
}

func (s *memoryStore) Use(_ context.Context, sha256 string) (bool, error) {
	_, has := s.packages[sha256]
	return has, s.down
}

func (s *memoryStore) Put(_ context.Context, sha256 string, content io.Reader, size int64) error {
	if s.down != nil {
		return s.down
	}
	all, err := io.ReadAll(content)
	if err != nil || int64(len(all)) != size || digestOf(all) != sha256 {
		return fmt.Errorf("%d bytes of %d: %w", len(all), size, err)
	}
	s.packages[sha256] = all
	return nil
}

func activitiesWith(t *testing.T, options Options, objects ...*corev1.Secret) *Activities {
	t.Helper()
	client := fake.NewClientset()
	for _, secret := range objects {
		_, err := client.CoreV1().Secrets(secret.Namespace).Create(t.Context(), secret, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	options.Fetcher.Limits = source.DefaultLimits
	a, err := New(client, options)
	require.NoError(t, err)
	return a
}

func loopback() Options {
	return Options{Fetcher: source.Fetcher{Image: "slipway:test", Allow: []string{"127.0.0.0/8"}}}
}

func fetchRequest(url string) source.FetchRequest {
	return source.FetchRequest{Package: source.Package{URL: url, Container: "app", MountPath: "/app"}, Party: "default",
		Namespace: "shop", Service: "111",
		DeadlineSeconds: 600}
}

// kindOf returns the kind of a failure, and whether Temporal retries it.
func kindOf(t *testing.T, err error) (failure.Kind, bool) {
	t.Helper()
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	return failure.Kind(app.Type()), !app.NonRetryable()
}

func TestFetch_ReturnsDigestAndStoresPackage(t *testing.T) {
	t.Parallel()
	content := zipOf(t, "index.html", "hello")
	s, store := newPackageServer(t, content), &memoryStore{packages: map[string][]byte{}}
	options := loopback()
	options.Store = store
	a := activitiesWith(t, options)
	got, err := a.Fetch(t.Context(), fetchRequest(s.URL+"/order.zip"))
	require.NoError(t, err)
	require.Equal(t, digestOf(content), got.SHA256)
	require.Equal(t, int64(len(content)), got.Bytes)
	require.Equal(t, "zip", got.Format)
	require.Equal(t, int64(len("hello")), got.UnpackedBytes)
	require.True(t, got.Stored)
	require.Equal(t, content, store.packages[got.SHA256])

	confirm := fetchRequest(s.URL + "/order.zip")
	confirm.SHA256, confirm.Previous = got.SHA256, got
	again, err := a.Confirm(t.Context(), confirm)
	require.NoError(t, err)
	require.Equal(t, got, again)
	require.Equal(t, 1, s.gets, "an unchanged package is not downloaded again")

	delete(store.packages, got.SHA256)
	again, err = a.Confirm(t.Context(), confirm)
	require.NoError(t, err)
	require.True(t, again.Stored, "a package that is missing in the store is stored again")
	require.Len(t, store.packages, 1)
}

func TestFetch_Failures(t *testing.T) {
	t.Parallel()
	sound := zipOf(t, "index.html", "hello")
	cases := map[string]struct {
		reason  string
		prepare func(s *packageServer, options *Options, req *source.FetchRequest)
		kind    failure.Kind
		again   bool
		says    string
	}{
		"NotFound": {"a missing package is a final failure",
			func(s *packageServer, _ *Options, _ *source.FetchRequest) { s.status = 404 },
			failure.Refused, false, "of service 111 can't be fetched"},
		"ServerError": {"a server error is retried", func(s *packageServer, _ *Options, _ *source.FetchRequest) {
			s.status = 503
		},
			failure.NotReady, true, "503"},
		"ServerErrorPastDeadline": {"but only until the deadline",
			func(s *packageServer, o *Options, req *source.FetchRequest) {
				now := time.Now()
				s.status, req.DeadlineSeconds = 503, 90
				o.Now = func() time.Time { now = now.Add(time.Minute + time.Minute); return now }
			}, failure.WorkloadFailed, false, "it was tried for"},
		"NoArchive": {"a login page of a proxy is no package",
			func(s *packageServer, _ *Options, _ *source.FetchRequest) { s.content = []byte("<html>sign in</html>") },
			failure.Refused, false, "can't be unpacked"},
		"OtherBytes": {"every party must get the same bytes",
			func(_ *packageServer, _ *Options, req *source.FetchRequest) { req.SHA256 = digestOf(nil) },
			failure.Refused, false, "has changed while service 111 was being released"},
		"Loopback": {"a private address is refused unless it is allowed",
			func(_ *packageServer, o *Options, _ *source.FetchRequest) { o.Fetcher.Allow = nil },
			failure.Refused, false, "SLIPWAY_SOURCE_ALLOW"},
		"TooLarge": {"the limit of the party", func(_ *packageServer, o *Options, _ *source.FetchRequest) {
			o.Fetcher.Limits.Bytes = 1
		},
			failure.Refused, false, "limit"},
		"NoSecret": {"a Secret that does not exist", func(_ *packageServer, _ *Options, req *source.FetchRequest) {
			req.Credentials = "opens"
		},
			failure.Refused, false, "Secret shop/opens, which package.credentials names, does not exist"},
		"HiddenFromParty": {"a query that stays out of histories, and a worker without access to the records",
			func(_ *packageServer, _ *Options, req *source.FetchRequest) { req.Hidden = true },
			failure.Refused, false, "key `query`"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, options := newPackageServer(t, sound), loopback()
			options.Fetcher.Limits = source.DefaultLimits
			req := fetchRequest(s.URL + "/order.zip?signature=s3cr3t")
			tc.prepare(s, &options, &req)
			limits := options.Fetcher.Limits
			a := activitiesWith(t, options)
			a.options.Fetcher.Limits = limits
			_, err := a.Fetch(t.Context(), req)
			require.ErrorContains(t, err, tc.says, tc.reason)
			require.NotContains(t, err.Error(), "s3cr3t")
			kind, again := kindOf(t, err)
			require.Equal(t, tc.kind, kind, tc.reason)
			require.Equal(t, tc.again, again, tc.reason)
		})
	}
}

// TestFetch_BoundsTemporarySpace: packages that are downloaded at once take no more space than the worker allows. The
// one that finds none left is retried, and succeeds when the other has ended.
func TestFetch_BoundsTemporarySpace(t *testing.T) {
	t.Parallel()
	sound := zipOf(t, "index.html", strings.Repeat("hello ", 10000))
	half, finish := make(chan struct{}), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(sound[:len(sound)/2])
		_ = http.NewResponseController(w).Flush()
		close(half)
		<-finish
		_, _ = w.Write(sound[len(sound)/2:])
	}))
	defer slow.Close()
	options := loopback()
	options.TempBytes = int64(len(sound)) + 10
	a := activitiesWith(t, options)
	ended := make(chan error, 1)
	go func() {
		_, err := a.Fetch(t.Context(), fetchRequest(slow.URL+"/slow.zip"))
		ended <- err
	}()
	<-half
	require.Eventually(t, func() bool {
		free := a.space.Take(options.TempBytes/2+10) == nil
		if free {
			a.space.Give(options.TempBytes/2 + 10)
		}
		return !free
	}, time.Minute, time.Millisecond, "the first half is on disk")
	other := newPackageServer(t, sound)
	_, err := a.Fetch(t.Context(), fetchRequest(other.URL+"/order.zip"))
	require.ErrorContains(t, err, "no temporary space left for packages (--package-temp-bytes)")
	kind, again := kindOf(t, err)
	require.Equal(t, failure.NotReady, kind)
	require.True(t, again, "it is retried")
	close(finish)
	require.NoError(t, <-ended, "the other one goes on")
	for range 3 {
		_, err = a.Fetch(t.Context(), fetchRequest(other.URL+"/order.zip"))
		require.NoError(t, err, "each download frees its space")
	}
	require.NoError(t, a.space.Take(options.TempBytes), "nothing is left")
}

func TestConfirm_WhenSourceChanges(t *testing.T) {
	t.Parallel()
	first := zipOf(t, "index.html", "hello")
	s := newPackageServer(t, first)
	a := activitiesWith(t, loopback())
	req := fetchRequest(s.URL + "/latest.zip")
	got, err := a.Fetch(t.Context(), req)
	require.NoError(t, err)
	req.SHA256, req.Previous = got.SHA256, got
	s.set(func() { s.content, s.etag = zipOf(t, "index.html", "HELLO"), `"2"` })
	_, err = a.Confirm(t.Context(), req)
	require.ErrorContains(t, err, "has changed while service 111 was being released")
	s.set(func() { s.content, s.etag = first, `"3"` })
	_, err = a.Confirm(t.Context(), req)
	require.NoError(t, err, "another ETag for the same bytes is the same package")
	s.set(func() { s.status = 410 })
	_, err = a.Confirm(t.Context(), req)
	require.ErrorContains(t, err, "can't be fetched")
}

func TestFetch_Succeeds_WhenStoreIsDown(t *testing.T) {
	t.Parallel()
	s, options := newPackageServer(t, zipOf(t, "a", "b")), loopback()
	options.Store = &memoryStore{down: errors.New("no answer")}
	got, err := activitiesWith(t, options).Fetch(t.Context(), fetchRequest(s.URL+"/a.zip"))
	require.NoError(t, err)
	require.False(t, got.Stored, "pods fetch it from its source")
}

func TestFetch_DoesNotCheckArchive_WhenDeployedAsFile(t *testing.T) {
	t.Parallel()
	s := newPackageServer(t, []byte("not an archive"))
	req := fetchRequest(s.URL + "/app.jar")
	req.File = "app.jar"
	got, err := activitiesWith(t, loopback()).Fetch(t.Context(), req)
	require.NoError(t, err)
	require.Empty(t, got.Format)
}

func TestFetch_SendsCredentialsAndHiddenQuery(t *testing.T) {
	t.Parallel()
	s, options := newPackageServer(t, zipOf(t, "a", "b")), loopback()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "opens"}, Data: map[string][]byte{
		"token": []byte("t0ken"), "hosts": []byte("http://" + s.Listener.Addr().String())}}
	options.RecordedURL = func(_ context.Context, task string, item int) (string, error) {
		require.Equal(t, "shop-1", task)
		require.Equal(t, 3, item)
		return s.URL + "/a.zip?signature=s3cr3t", nil
	}
	a := activitiesWith(t, options, secret)
	req := fetchRequest(s.URL + "/a.zip")
	req.Credentials, req.Hidden, req.Task, req.Item = "opens", true, "shop-1", 3
	_, err := a.Fetch(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, []string{"signature=s3cr3t"}, s.queries)
	require.Equal(t, "Bearer t0ken", s.headers[0].Get("Authorization"))
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	others := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "others"}, Data: map[string][]byte{
		"token": []byte("t0ken"), "hosts": []byte("packages.example.com")}}
	broken := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "broken"},
		Data: map[string][]byte{"token": []byte("t0ken")}}
	public := Options{Fetcher: source.Fetcher{Image: "slipway:test", Store: "http://10.1.2.3:8085"}}
	cases := map[string]struct {
		reason  string
		options Options
		p       source.Package
		says    string
	}{
		"Fine": {"nothing prevents the fetch", public, source.Package{URL: "https://packages.example.com/a.zip"},
			""},
		"NoImage": {"pods have no image to fetch it with", Options{},
			source.Package{URL: "https://packages.example.com/a.zip"}, "set SLIPWAY_IMAGE"},
		"Metadata": {"the metadata service of a cloud provider", public,
			source.Package{URL: "http://169.254.169.254/latest"}, "SLIPWAY_SOURCE_ALLOW"},
		"Store": {"a package in the party's own store", public,
			source.Package{URL: "http://10.1.2.3:8085/packages/sha256/x"}, ""},
		"Neighbour": {"a longer port is another server", public, source.Package{URL: "http://10.1.2.3:80851/packages"},
			"port"},
		"Hidden": {"only a worker with access to the records has the query", public,
			source.Package{URL: "https://packages.example.com/a", Hidden: true}, "key `query`"},
		"NoSecret": {"the Secret does not exist", public,
			source.Package{URL: "https://packages.example.com/a", Credentials: "none"}, "does not exist"},
		"NoHosts": {"the Secret does not name its hosts", public,
			source.Package{URL: "https://packages.example.com/a", Credentials: "broken"}, "hosts"},
		"OtherHost": {"the Secret names another host", public,
			source.Package{URL: "https://files.example.com/a", Credentials: "others"},
			"Secret shop/others has no credentials for https://files.example.com"},
		"PlainHTTP": {"the Secret names the host for https only", public,
			source.Package{URL: "http://packages.example.com/a", Credentials: "others"},
			"no credentials for http://packages.example.com"},
		"Named": {"the Secret names this host", public,
			source.Package{URL: "https://packages.example.com/a", Credentials: "others"}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refusal, err := activitiesWith(t, tc.options, others, broken).Refuses(t.Context(), tc.p, "shop")
			require.NoError(t, err)
			if tc.says == "" {
				require.Empty(t, refusal, tc.reason)
				return
			}
			require.Contains(t, refusal.Reason, tc.says, tc.reason)
			blamesURL := slices.Contains([]string{"Metadata", "Neighbour", "Hidden"}, name)
			require.Equal(t, blamesURL, refusal.Key == source.KeyPackage,
				"the refusal names the URL only when another URL would help")
		})
	}
}
