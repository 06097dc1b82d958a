// Package buckets runs a server of S3 for tests: versitygw, which keeps objects as files.
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

// Name is the bucket that a server has.
const Name = "packages"

// The credentials of every server.
const accessKey, secretKey = "slipway", "slipway-secret"

// Environment is what a program has to have in its environment to use a server.
var Environment = map[string]string{"AWS_ACCESS_KEY_ID": accessKey, "AWS_SECRET_ACCESS_KEY": secretKey}

// Server is one server with one empty bucket. Its process can be killed: the address stays.
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
	// before is asked about each request first.
	before atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
}

// Start runs a server, which ends with the test. A test without the local stack is skipped, since the server is built with it.
func Start(t testing.TB) *Server {
	t.Helper()
	program := filepath.Join(programs.Folder(t, "s3"), "versitygw")
	folder, err := os.MkdirTemp("", "s3") // a path that is short enough for a socket
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	s := &Server{t: t, program: program, folder: folder, socket: filepath.Join(folder, "socket")}
	front := httptest.NewServer(s.proxy())
	t.Cleanup(front.Close)
	s.URL = front.URL
	s.Run()
	t.Cleanup(s.Kill)
	s.S3, err = minio.New(front.Listener.Addr().String(), &minio.Options{Creds: credentials.NewStaticV4(accessKey, secretKey, "")})
	require.NoError(t, err)
	require.NoError(t, s.S3.MakeBucket(context.Background(), Name, minio.MakeBucketOptions{}))
	return s
}

// proxy passes requests on to the socket of the server, with the host that they were signed for.
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
		if before := s.before.Load(); before == nil || !(*before)(w, r) {
			to.ServeHTTP(w, r)
		}
	})
}

// Before has a function see each request first. If it says true, it has answered.
func (s *Server) Before(see func(http.ResponseWriter, *http.Request) bool) { s.before.Store(&see) }

// Run starts the process, and waits until it answers.
func (s *Server) Run() {
	s.t.Helper()
	for _, name := range []string{"objects", "attributes"} {
		require.NoError(s.t, os.MkdirAll(filepath.Join(s.folder, name), 0o750))
	}
	_ = os.Remove(s.socket) // a killed process leaves it
	s.process = exec.Command(s.program, "--port", s.socket, "--access", accessKey, "--secret", secretKey, "--quiet", "--keep-alive", "posix",
		"--sidecar", filepath.Join(s.folder, "attributes"), filepath.Join(s.folder, "objects"))
	s.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(s.t, s.process.Start())
	require.Eventually(s.t, func() bool {
		connection, err := net.Dial("unix", s.socket)
		return err == nil && connection.Close() == nil
	}, time.Minute, 5*time.Millisecond)
}

// Kill ends the process as a crash does.
func (s *Server) Kill() {
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
}

// Keys are the names of all objects in the bucket, sorted.
func (s *Server) Keys() []string {
	s.t.Helper()
	var keys []string
	for o := range s.S3.ListObjectsIter(context.Background(), Name, minio.ListObjectsOptions{Recursive: true}) {
		require.NoError(s.t, o.Err)
		keys = append(keys, o.Key)
	}
	return keys
}

// Uploads are the names of the objects that are being uploaded.
func (s *Server) Uploads() []string {
	s.t.Helper()
	var keys []string
	for u := range s.S3.ListIncompleteUploads(context.Background(), Name, "", true) {
		require.NoError(s.t, u.Err)
		keys = append(keys, u.Key)
	}
	return keys
}
