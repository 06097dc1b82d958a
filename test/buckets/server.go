// Package buckets runs an S3 server for tests: versitygw, which keeps objects as files.
package buckets

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/stretchr/testify/require"

	"slipway.io/slipway/test/programs"
)

// Name is the bucket of every server.
const Name = "packages"

// The credentials of every server.
const accessKey, secretKey = "slipway", "slipway-secret"

// Environment holds the environment variables that a program needs to use a server.
var Environment = map[string]string{"AWS_ACCESS_KEY_ID": accessKey, "AWS_SECRET_ACCESS_KEY": secretKey}

// Server is a server with one empty bucket. Its process can be killed and started again at the same address.
type Server struct {
	// URL is its endpoint.
	URL string
	// S3 is a client of it.
	S3 *minio.Client

	t       testing.TB
	program string
	folder  string
	socket  string
	process *exec.Cmd
	// interceptor is called first for each request.
	interceptor atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
}

// Start starts a server, which ends with the test. Without the local stack the test is skipped, because the server is
// built with it.
func Start(t testing.TB) *Server {
	t.Helper()
	program := filepath.Join(programs.Folder(t, "s3"), "versitygw")
	folder, err := os.MkdirTemp("", "s3") // the path of a socket must be short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	s := &Server{t: t, program: program, folder: folder, socket: filepath.Join(folder, "socket")}
	front := httptest.NewServer(s.proxy())
	t.Cleanup(front.Close)
	s.URL = front.URL
	s.Run()
	t.Cleanup(s.Kill)
	s.S3, err = minio.New(front.Listener.Addr().String(),
		&minio.Options{Creds: credentials.NewStaticV4(accessKey, secretKey, "")})
	require.NoError(t, err)
	require.NoError(t, s.S3.MakeBucket(context.Background(), Name, minio.MakeBucketOptions{}))
	return s
}

// proxy forwards requests to the socket of the server, with the host for which they were signed.
func (s *Server) proxy() http.Handler {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.socket)
	}
	to := &httputil.ReverseProxy{
		Transport:     &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 32},
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: "s3"})
			r.Out.Host = r.In.Host
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if before := s.interceptor.Load(); before == nil || !(*before)(w, r) {
			to.ServeHTTP(w, r)
		}
	})
}

// Intercept makes a function see each request first. If it returns true, it has answered the request.
func (s *Server) Intercept(see func(http.ResponseWriter, *http.Request) bool) {
	s.interceptor.Store(&see)
}

// Run starts the process and waits until it accepts connections.
func (s *Server) Run() {
	s.t.Helper()
	for _, name := range []string{"objects", "attributes"} {
		require.NoError(s.t, os.MkdirAll(filepath.Join(s.folder, name), 0o750))
	}
	_ = os.Remove(s.socket) // a killed process leaves it
	s.process = exec.Command(s.program, "--port", s.socket, "--access", accessKey, "--secret", secretKey, "--quiet",
		"--keep-alive", "posix",
		"--sidecar", filepath.Join(s.folder, "attributes"), filepath.Join(s.folder, "objects"))
	s.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(s.t, s.process.Start())
	require.Eventually(s.t, func() bool {
		connection, err := net.Dial("unix", s.socket)
		return err == nil && connection.Close() == nil
	}, time.Minute, 5*time.Millisecond)
}

// Kill kills the process, like a crash.
func (s *Server) Kill() {
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
}

// Keys returns the names of all objects in the bucket, sorted.
func (s *Server) Keys() []string {
	s.t.Helper()
	var keys []string
	for o := range s.S3.ListObjectsIter(context.Background(), Name, minio.ListObjectsOptions{Recursive: true}) {
		require.NoError(s.t, o.Err)
		keys = append(keys, o.Key)
	}
	return keys
}

// Uploads returns the names of the objects with incomplete uploads.
func (s *Server) Uploads() []string {
	s.t.Helper()
	var keys []string
	for u := range s.S3.ListIncompleteUploads(context.Background(), Name, "", true) {
		require.NoError(s.t, u.Err)
		keys = append(keys, u.Key)
	}
	return keys
}
