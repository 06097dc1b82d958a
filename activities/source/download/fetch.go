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

// Download is the result of a download.
type Download struct {
	// SHA256 is the digest of all bytes, in lower-case hexadecimal digits.
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
	// ETag and LastModified are headers of the response; "": the server did not send them.
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"lastModified,omitempty"`
	// FinalURL is the URL after all redirects, redacted.
	FinalURL string `json:"finalURL"`
}

const bufferBytes = 256 << 10

// transfer is one call of Fetch. It makes several requests if a body breaks off and the server can continue it.
type transfer struct {
	client *Client
	rawURL string
	file   *os.File
	hash   hash.Hash
	bytes  int64
	// result describes the response whose body is in the file; size is that body's length, -1 if unknown.
	result Download
	size   int64
}

// Fetch downloads a URL into a file, which it empties first. A body that breaks off is continued where it ended, up to
// maxContinuations times, if the response had a strong ETag. Fetch returns an *Error for errors of the server or the
// network, the context's error if that has ended, and any other error for problems with the file. After an error the
// file's content is undefined.
func (c *Client) Fetch(ctx context.Context, rawURL string, into *os.File) (Download, error) {
	t := &transfer{client: c, rawURL: rawURL, file: into}
	if err := t.reset(); err != nil {
		return Download{}, err
	}
	for continued := 0; ; continued++ {
		err := t.attempt(ctx)
		if err == nil {
			t.result.SHA256, t.result.Bytes = hex.EncodeToString(t.hash.Sum(nil)), t.bytes
			return t.result, nil
		}
		if continued == maxContinuations || !t.canContinue(err) {
			return Download{}, withURL(err, rawURL)
		}
		pause, _ := RetryAfter(err, continued+1)
		if err := c.pause(ctx, pause); err != nil {
			return Download{}, err
		}
	}
}

// reset empties the file, for a download from the beginning.
func (t *transfer) reset() error {
	if err := t.file.Truncate(0); err != nil {
		return fmt.Errorf("empty the file for the download: %w", err)
	}
	if _, err := t.file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("rewind the file for the download: %w", err)
	}
	t.hash, t.bytes, t.result, t.size = sha256.New(), 0, Download{}, -1
	return nil
}

// withURL sets the requested URL in an *Error.
func withURL(err error, rawURL string) error {
	var failed *Error
	if errors.As(err, &failed) {
		failed.URL = source.Redact(rawURL)
	}
	return err
}

// attempt makes one request and writes its body to the file.
func (t *transfer) attempt(parent context.Context) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	response, at, err := t.client.get(ctx, t.rawURL, t.rangeHeader())
	if err != nil {
		return t.discardIfUnsatisfiable(err)
	}
	defer response.Body.Close()
	if err := t.acceptBody(response, at); err != nil {
		return at.withRedirect(err)
	}
	if err := t.copy(ctx, cancel, response.Body); err != nil {
		return at.withRedirect(err)
	}
	// A chunked part may be shorter or longer than its header claims.
	if t.size >= 0 && t.bytes != t.size {
		return t.discard()
	}
	return nil
}

// acceptBody checks whether the body of a response is acceptable, and prepares the file for it.
func (t *transfer) acceptBody(response *http.Response, at hop) error {
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
	t.result = Download{
		ETag:         response.Header.Get("ETag"),
		LastModified: response.Header.Get("Last-Modified"),
		FinalURL:     source.Redact(at.url.String()),
	}
	return nil
}

// accept checks whether the body of a response is an acceptable package.
func (c *Client) accept(response *http.Response, at hop) error {
	switch {
	case response.StatusCode != http.StatusOK:
		return refuse("the server answered %s: a download needs 200 OK", statusText(response.StatusCode))
	case response.ContentLength > c.options.MaxBytes:
		return c.tooLarge()
	case !isFileTypeLabel(encoding(response), at.url):
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

// isFileTypeLabel reports whether a Content-Encoding only names the file's type. Some web servers label app.tar.gz as
// gzip and send the file unchanged. A body that is compressed for the transfer has other bytes than the file, and
// different ones after the server's next update.
func isFileTypeLabel(encoding string, u *url.URL) bool {
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

// copy writes a body to the file and the hash.
func (t *transfer) copy(ctx context.Context, cancel context.CancelCauseFunc, body io.Reader) error {
	return t.client.stream(ctx, cancel, body, func(some []byte) error {
		if t.bytes+int64(len(some)) > t.client.options.MaxBytes {
			return t.client.tooLarge()
		}
		if _, err := t.file.Write(some); err != nil {
			return fmt.Errorf("write the download: %w", err)
		}
		t.hash.Write(some)
		t.bytes += int64(len(some))
		return nil
	})
}

// stream passes a body to take piece by piece. It cancels the context when the server sends nothing for IdleTimeout;
// the time that take needs does not count.
func (c *Client) stream(ctx context.Context, cancel context.CancelCauseFunc, body io.Reader,
	take func(some []byte) error) error {
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
			return c.classify(ctx, err)
		}
	}
}
