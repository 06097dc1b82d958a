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

// transfer is one call of Fetch.
type transfer struct {
	client *Client
	into   *os.File
	hash   hash.Hash
	bytes  int64
}

// Fetch downloads a URL into a file, which it empties first. It returns an *Error for what the server or the network did, the context's
// error when that has ended, and any other error for trouble with the file. The file's content is of no use after an error.
func (c *Client) Fetch(ctx context.Context, rawURL string, into *os.File) (Download, error) {
	t := &transfer{client: c, into: into, hash: sha256.New()}
	if err := into.Truncate(0); err != nil {
		return Download{}, fmt.Errorf("empty the file for the download: %w", err)
	}
	if _, err := into.Seek(0, io.SeekStart); err != nil {
		return Download{}, fmt.Errorf("rewind the file for the download: %w", err)
	}
	done, err := t.run(ctx, rawURL)
	if err != nil {
		return Download{}, named(err, rawURL)
	}
	return done, nil
}

// named puts the URL that was asked for into an error.
func named(err error, rawURL string) error {
	var failed *Error
	if errors.As(err, &failed) {
		failed.URL = source.Redact(rawURL)
	}
	return err
}

func (t *transfer) run(parent context.Context, rawURL string) (Download, error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	response, at, err := t.client.get(ctx, rawURL, nil)
	if err != nil {
		return Download{}, err
	}
	defer response.Body.Close()
	if err := t.client.accept(response, at); err != nil {
		return Download{}, at.told(err)
	}
	if err := t.copy(ctx, cancel, response.Body); err != nil {
		return Download{}, at.told(err)
	}
	return Download{
		SHA256:       hex.EncodeToString(t.hash.Sum(nil)),
		Bytes:        t.bytes,
		ETag:         response.Header.Get("ETag"),
		LastModified: response.Header.Get("Last-Modified"),
		FinalURL:     source.Redact(at.url.String()),
	}, nil
}

// accept says whether the body of an answer is a package that we take.
func (c *Client) accept(response *http.Response, at hop) error {
	encoding := strings.ToLower(strings.TrimSpace(response.Header.Get("Content-Encoding")))
	switch {
	case response.StatusCode != http.StatusOK:
		return refuse("the server answered %s: a download needs 200 OK", statusText(response.StatusCode))
	case response.ContentLength > c.options.MaxBytes:
		return c.tooLarge()
	case !isLabel(encoding, at.url):
		return refuse("the server compresses the body although it was asked not to: turn off compression for this path")
	}
	return nil
}

func (c *Client) tooLarge() *Error {
	return refuse("the package is larger than the limit of %d bytes", c.options.MaxBytes)
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

// copy streams a body into the file. The context is cancelled when the server is silent for too long; time spent writing doesn't count.
func (t *transfer) copy(ctx context.Context, cancel context.CancelCauseFunc, body io.Reader) error {
	silence := time.AfterFunc(t.client.options.IdleTimeout, func() { cancel(errSilent) })
	defer silence.Stop()
	buffer := make([]byte, bufferBytes)
	for {
		silence.Reset(t.client.options.IdleTimeout)
		n, err := body.Read(buffer)
		silence.Stop()
		if t.bytes+int64(n) > t.client.options.MaxBytes {
			return t.client.tooLarge()
		}
		if _, err := t.into.Write(buffer[:n]); err != nil {
			return fmt.Errorf("write the download: %w", err)
		}
		t.hash.Write(buffer[:n])
		t.bytes += int64(n)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return t.client.trouble(ctx, err)
		}
	}
}
