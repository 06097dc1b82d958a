package download

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"slipway.io/slipway/release/source"
)

// Download is what was fetched.
type Download struct {
	// SHA256 is over all bytes, in lower-case hexadecimal digits.
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
	// ETag and LastModified are as the server sent them; "": it didn't.
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"lastModified,omitempty"`
	// FinalURL is where the redirects have led, redacted.
	FinalURL string `json:"finalURL"`
}

const bufferBytes = 256 << 10

// transfer is one call of Fetch. It is several requests if a body breaks off and the server can continue it.
type transfer struct {
	client *Client
	rawURL string
	into   *os.File
	hash   hash.Hash
	bytes  int64
	// told is what the answer said whose body is in the file, and size how long that is; -1: it didn't say.
	told Download
	size int64
}

// Fetch downloads a URL into a file, which it empties first. A body that breaks off is continued where it ended, a few times, if the server
// tells versions of the file apart. Fetch returns an *Error for what the server or the network did, the context's error when that has ended,
// and any other error for trouble with the file. The file's content is of no use after an error.
func (c *Client) Fetch(ctx context.Context, rawURL string, into *os.File) (Download, error) {
	t := &transfer{client: c, rawURL: rawURL, into: into}
	if err := t.reset(); err != nil {
		return Download{}, err
	}
	for continued := 0; ; continued++ {
		err := t.attempt(ctx)
		if err == nil {
			t.told.SHA256, t.told.Bytes = hex.EncodeToString(t.hash.Sum(nil)), t.bytes
			return t.told, nil
		}
		if continued == maxContinuations || !t.continuable(err) {
			return Download{}, named(err, rawURL)
		}
		pause, _ := RetryAfter(err, continued+1)
		if err := c.pause(ctx, pause); err != nil {
			return Download{}, err
		}
	}
}

// reset empties the file, to begin anew.
func (t *transfer) reset() error {
	if err := t.into.Truncate(0); err != nil {
		return fmt.Errorf("empty the file for the download: %w", err)
	}
	if _, err := t.into.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("rewind the file for the download: %w", err)
	}
	t.hash, t.bytes, t.told, t.size = sha256.New(), 0, Download{}, -1
	return nil
}

// named puts the URL that was asked for into an error.
func named(err error, rawURL string) error {
	var failed *Error
	if errors.As(err, &failed) {
		failed.URL = source.Redact(rawURL)
	}
	return err
}

// attempt makes one request and takes its body.
func (t *transfer) attempt(parent context.Context) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	response, at, err := t.client.get(ctx, t.rawURL, t.rest())
	if err != nil {
		return t.unlessUnsatisfiable(err)
	}
	defer response.Body.Close()
	if err := t.begin(response, at); err != nil {
		return at.told(err)
	}
	if err := t.copy(ctx, cancel, response.Body); err != nil {
		return at.told(err)
	}
	// A chunked part may end before or behind what its header says.
	if t.size >= 0 && t.bytes != t.size {
		return t.spoiled()
	}
	return nil
}

// begin says whether the body of an answer is taken, and prepares the file for it.
func (t *transfer) begin(response *http.Response, at hop) error {
	if response.StatusCode == http.StatusPartialContent && t.bytes > 0 {
		return t.resume(response, at)
	}
	if err := t.client.accept(response, at); err != nil {
		return err
	}
	if err := t.reset(); err != nil {
		return err
	}
	t.size = response.ContentLength
	t.told = Download{
		ETag:         response.Header.Get("ETag"),
		LastModified: response.Header.Get("Last-Modified"),
		FinalURL:     source.Redact(at.url.String()),
	}
	return nil
}

// accept says whether the body of an answer is a package that we take.
func (c *Client) accept(response *http.Response, at hop) error {
	switch {
	case response.StatusCode != http.StatusOK:
		return refuse("the server answered %s: a download needs 200 OK", statusText(response.StatusCode))
	case response.ContentLength > c.options.MaxBytes:
		return c.tooLarge()
	case !isLabel(encoding(response), at.url):
		return refuse("the server compresses the body although it was asked not to: turn off compression for this path")
	}
	return nil
}

func (c *Client) tooLarge() *Error {
	return refuse("the package is larger than the limit of %d bytes", c.options.MaxBytes)
}

func encoding(response *http.Response) string {
	return strings.ToLower(strings.TrimSpace(strings.Join(response.Header.Values("Content-Encoding"), ", ")))
}

// isLabel says whether a Content-Encoding only tells what kind of file it is. Some web servers label app.tar.gz as gzip, and send the file as
// it is. A body that is compressed on the way has other bytes than the file, and other ones after the server's next update.
func isLabel(encoding string, u *url.URL) bool {
	extension := strings.ToLower(path.Ext(u.Path))
	switch encoding {
	case "", "identity":
		return true
	case "gzip", "x-gzip":
		return slices.Contains([]string{".gz", ".tgz"}, extension)
	case "zstd":
		return slices.Contains([]string{".zst", ".tzst"}, extension)
	}
	return false
}

// copy streams a body into the file.
func (t *transfer) copy(ctx context.Context, cancel context.CancelCauseFunc, body io.Reader) error {
	return t.client.stream(ctx, cancel, body, func(some []byte) error {
		if t.bytes+int64(len(some)) > t.client.options.MaxBytes {
			return t.client.tooLarge()
		}
		if _, err := t.into.Write(some); err != nil {
			return fmt.Errorf("write the download: %w", err)
		}
		t.hash.Write(some)
		t.bytes += int64(len(some))
		return nil
	})
}

// stream hands a body over piece by piece. The context is cancelled when the server is silent for too long; time that take needs doesn't count.
func (c *Client) stream(ctx context.Context, cancel context.CancelCauseFunc, body io.Reader, take func(some []byte) error) error {
	silence := time.AfterFunc(c.options.IdleTimeout, func() { cancel(errSilent) })
	defer silence.Stop()
	buffer := make([]byte, bufferBytes)
	for {
		silence.Reset(c.options.IdleTimeout)
		n, err := body.Read(buffer)
		silence.Stop()
		if err := take(buffer[:n]); err != nil {
			return err
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return c.trouble(ctx, err)
		}
	}
}
