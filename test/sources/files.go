// Package sources serves what a release fetches: files over HTTP that behave as a test asks, and Git repositories.
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

// Files is an HTTP server of files on loopback. It answers conditional and range requests as a good server does.
type Files struct {
	// URL is where it is, without a slash at the end.
	URL string

	server *httptest.Server
	mu     sync.Mutex
	files  map[string]*served
	login  *login
}

// served is one path.
type served struct {
	// contents are what it serves: each download takes the first off, until one is left.
	contents [][]byte
	changed  time.Time
	// next answers the next requests instead.
	next      []http.Handler
	requests  []*http.Request
	downloads int
}

type login struct{ username, password string }

// NewFiles is a server without files. It ends with the test.
func NewFiles(t testing.TB) *Files {
	t.Helper()
	f := &Files{files: map[string]*served{}}
	f.server = httptest.NewServer(f)
	f.URL = f.server.URL
	t.Cleanup(func() {
		f.server.CloseClientConnections()
		f.server.Close()
	})
	return f
}

// Put serves this content at a path, "/latest.zip", from now on. With further contents each download is of the next one, and from the last on of that.
func (f *Files) Put(path string, content []byte, further ...[]byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	file := f.at(path)
	file.contents, file.changed = append([][]byte{content}, further...), time.Now()
}

// Remove makes a path one that is not there.
func (f *Files) Remove(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at(path).contents = nil
}

// Next has these answer the next requests for a path, one each.
func (f *Files) Next(path string, answers ...http.Handler) {
	f.mu.Lock()
	defer f.mu.Unlock()
	file := f.at(path)
	file.next = append(file.next, answers...)
}

// RequireBasic refuses from now on who does not know this.
func (f *Files) RequireBasic(username, password string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.login = &login{username, password}
}

// Downloads are how often the content of a path was asked for and sent, whole, in part or cut off: neither HEAD nor an answer that nothing has changed.
func (f *Files) Downloads(path string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at(path).downloads
}

// Requests are all that were sent for a path, for a look at their methods and headers.
func (f *Files) Requests(path string) []*http.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*http.Request(nil), f.at(path).requests...)
}

// at needs the lock.
func (f *Files) at(path string) *served {
	if f.files[path] == nil {
		f.files[path] = &served{}
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

// answer is what a request is answered with, nil when it does not say whose it is. A download is counted, and its content taken off, before it is sent, so
// that whoever has it finds it counted.
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
		if _, sends := answer.(cut); sends && r.Method == http.MethodGet {
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
		http.ServeContent(&counted{ResponseWriter: w, sends: func() {
			if r.Method == http.MethodGet {
				f.sent(file)
			}
		}}, r, r.URL.Path, changed, bytes.NewReader(content))
	})
}

func (f *Files) sent(file *served) {
	f.mu.Lock()
	defer f.mu.Unlock()
	file.downloads++
	if len(file.contents) > 1 {
		file.contents = file.contents[1:]
		file.changed = file.changed.Add(time.Second) // HTTP tells times by the second
	}
}

// counted tells when an answer is one with content.
type counted struct {
	http.ResponseWriter
	sends func()
}

func (c *counted) WriteHeader(status int) {
	if status == http.StatusOK || status == http.StatusPartialContent {
		c.sends()
	}
	c.ResponseWriter.WriteHeader(status)
}

// CutOff is an answer that promises a content and breaks off after so many bytes of it.
func CutOff(content []byte, after int) http.Handler { return cut{content, after} }

type cut struct {
	content []byte
	after   int
}

func (c cut) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", strconv.Itoa(len(c.content)))
	_, _ = w.Write(c.content[:c.after])
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// Status is an answer of nothing but a status, and headers by name and value: `Status(503, "Retry-After", "1")`.
func Status(status int, headers ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
	})
}
