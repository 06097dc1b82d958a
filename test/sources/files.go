// Package sources serves the sources of releases: files over HTTP with the behaviour that a test needs, and Git
// repositories.
package sources

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Files is an HTTP server of files on loopback. It supports conditional and range requests.
type Files struct {
	// URL is its address, without a slash at the end.
	URL string

	server *httptest.Server
	mu     sync.Mutex
	files  map[string]*servedFile
	login  *login
}

// servedFile is the state of one path.
type servedFile struct {
	// contents are served in order: each download removes the first, until one is left.
	contents [][]byte
	changed  time.Time
	// next answers the next requests instead of the contents.
	next      []http.Handler
	requests  []*http.Request
	downloads int
}

type login struct{ username, password string }

// NewFiles starts a server without files. It ends with the test.
func NewFiles(t testing.TB) *Files {
	t.Helper()
	f := &Files{files: map[string]*servedFile{}}
	f.server = httptest.NewServer(f)
	f.URL = f.server.URL
	t.Cleanup(func() {
		f.server.CloseClientConnections()
		f.server.Close()
	})
	return f
}

// Put serves this content at a path, "/latest.zip", from now on. With further contents each download gets the next one,
// and the last one is repeated.
func (f *Files) Put(path string, content []byte, further ...[]byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	file := f.at(path)
	file.contents, file.changed = append([][]byte{content}, further...), time.Now()
}

// Remove makes a path answer 404.
func (f *Files) Remove(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at(path).contents = nil
}

// Next sets the answers for the next requests to a path, one each.
func (f *Files) Next(path string, answers ...http.Handler) {
	f.mu.Lock()
	defer f.mu.Unlock()
	file := f.at(path)
	file.next = append(file.next, answers...)
}

// RequireBasic refuses requests without these credentials from now on.
func (f *Files) RequireBasic(username, password string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.login = &login{username, password}
}

// Downloads returns how often the content of a path was requested and sent, completely, in part or cut off. HEAD and
// "not modified" do not count.
func (f *Files) Downloads(path string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at(path).downloads
}

// Requests returns all requests for a path, to check their methods and headers.
func (f *Files) Requests(path string) []*http.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*http.Request(nil), f.at(path).requests...)
}

// at returns the state of a path. The caller holds the lock.
func (f *Files) at(path string) *servedFile {
	if f.files[path] == nil {
		f.files[path] = &servedFile{}
	}
	return f.files[path]
}

// ServeHTTP answers one request.
func (f *Files) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := f.answer(r)
	if answer == nil {
		w.Header().Set("WWW-Authenticate", `Basic realm="packages"`)
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	answer.ServeHTTP(w, r)
}

// answer returns the handler for a request, nil if it lacks credentials. A download is counted, and its content
// removed, before it is sent, so that a client that has it finds it counted.
func (f *Files) answer(r *http.Request) http.Handler {
	f.mu.Lock()
	defer f.mu.Unlock()
	file := f.at(r.URL.Path)
	file.requests = append(file.requests, r.Clone(r.Context()))
	if username, password, _ := r.BasicAuth(); f.login != nil && *f.login != (login{username, password}) {
		return nil
	}
	if len(file.next) > 0 {
		answer := file.next[0]
		file.next = file.next[1:]
		if _, sends := answer.(truncated); sends && r.Method == http.MethodGet {
			file.downloads++
		}
		return answer
	}
	if len(file.contents) == 0 {
		return http.NotFoundHandler()
	}
	content, changed := file.contents[0], file.changed
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", strconv.Quote(fmt.Sprintf("%x", sha256.Sum256(content))[:16]))
		http.ServeContent(&countingWriter{ResponseWriter: w, sends: func() {
			if r.Method == http.MethodGet {
				f.recordDownload(file)
			}
		}}, r, r.URL.Path, changed, bytes.NewReader(content))
	})
}

func (f *Files) recordDownload(file *servedFile) {
	f.mu.Lock()
	defer f.mu.Unlock()
	file.downloads++
	if len(file.contents) > 1 {
		file.contents = file.contents[1:]
		file.changed = file.changed.Add(time.Second) // HTTP times have a resolution of one second
	}
}

// countingWriter calls sends for a response with content.
type countingWriter struct {
	http.ResponseWriter
	sends func()
}

func (c *countingWriter) WriteHeader(status int) {
	if status == http.StatusOK || status == http.StatusPartialContent {
		c.sends()
	}
	c.ResponseWriter.WriteHeader(status)
}

// CutOff returns an answer that announces a content but ends the connection after the given number of bytes.
func CutOff(content []byte, after int) http.Handler { return truncated{content, after} }

type truncated struct {
	content []byte
	after   int
}

func (c truncated) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", strconv.Itoa(len(c.content)))
	_, _ = w.Write(c.content[:c.after])
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// Status returns an answer with only a status, and headers by name and value: `Status(503, "Retry-After", "1")`.
func Status(status int, headers ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
	})
}
