package download

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway.io/slipway/release/source"
)

const bufferBytes = 256 << 10

// transfer is one call of Fetch. It makes several requests if a body breaks off and the server can continue it.
type transfer struct {
	client *Client
	rawURL string
	file   File
	hash   hash.Hash
	bytes  int64
	// result describes the response whose body is in the file; size is that body's length, -1 if unknown.
	result source.Fetched
	size   int64
}

// File takes a download.
type File interface {
	io.WriteSeeker
	Truncate(size int64) error
}

// Fetch downloads a URL into a file, which it empties first. A body that breaks off is continued where it ended, up to
// maxContinuations times, if the response had a strong ETag. Fetch returns an *Error for errors of the server or the
// network, the context's error if that has ended, and any other error for problems with the file. After an error the
// file's content is undefined.
func (c *Client) Fetch(ctx context.Context, rawURL string, into File) (source.Fetched, error) {
	t := &transfer{client: c, rawURL: rawURL, file: into}
	if err := t.reset(); err != nil {
		return source.Fetched{}, err
	}
	for continued := 0; ; continued++ {
		err := t.attempt(ctx)
		if err == nil {
			t.result.SHA256, t.result.Bytes = hex.EncodeToString(t.hash.Sum(nil)), t.bytes
			return t.result, nil
		}
		if continued == maxContinuations || !t.canContinue(err) {
			return source.Fetched{}, withURL(err, rawURL)
		}
		pause, _ := RetryAfter(err, continued+1)
		if err := c.pause(ctx, pause); err != nil {
			return source.Fetched{}, err
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
	t.hash, t.bytes, t.result, t.size = sha256.New(), 0, source.Fetched{}, -1
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
	if err = t.acceptBody(response, at); err == nil {
		err = t.copy(ctx, cancel, response.Body)
	}
	if err != nil {
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
	t.result = source.Fetched{
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

// maxContinuations is how often one Fetch requests the rest of a body that broke off. The caller may call Fetch again.
const maxContinuations = 5

// isStrong reports whether an ETag identifies exact bytes (RFC 9110, 8.8.3). Only with a strong one may parts of a file
// be combined.
func isStrong(etag string) bool { return len(etag) > 2 && etag[0] == '"' && etag[len(etag)-1] == '"' }

// canContinue reports whether another request can fetch the rest, or the complete file again, after this error.
func (t *transfer) canContinue(err error) bool {
	return Is(err, Temporary) && t.bytes > 0 && isStrong(t.result.ETag)
}

// rangeHeader returns the headers that request the rest of the file, or the complete file if it has changed; nil if no
// byte has arrived yet.
func (t *transfer) rangeHeader() http.Header {
	if t.bytes == 0 {
		return nil
	}
	return http.Header{"Range": {fmt.Sprintf("bytes=%d-", t.bytes)}, "If-Range": {t.result.ETag}}
}

// resume checks a partial response against the bytes in the file. The digest is not known beforehand, so a part of
// another version would make a package that was never published.
func (t *transfer) resume(response *http.Response, at hop) error {
	first, last, size, ok := contentRange(response.Header.Get("Content-Range"))
	switch {
	case !ok, first != t.bytes, last != size-1, t.size >= 0 && size != t.size, response.ContentLength >= 0 &&
		response.ContentLength != size-first, response.Header.Get("ETag") != t.result.ETag,
		source.Redact(at.url.String()) != t.result.FinalURL, !isFileTypeLabel(encoding(response), at.url):
		return t.discard()
	case size > t.client.options.MaxBytes:
		return t.client.tooLarge()
	}
	t.size = size
	t.client.options.Log.Info("Continuing an interrupted download.", "url", t.result.FinalURL, "at", t.bytes, "of",
		size)
	return nil
}

// discard empties the file, so that no request continues it, and returns the error for that.
func (t *transfer) discard() error {
	if err := t.reset(); err != nil {
		return err
	}
	return temporary("the download broke off, and the server did not continue the same file")
}

// discardIfUnsatisfiable returns err, unless the server rejected the requested range (416): then the file has changed,
// or the server can't continue it.
func (t *transfer) discardIfUnsatisfiable(err error) error {
	var failed *Error
	if t.bytes > 0 && errors.As(err, &failed) && failed.Status == http.StatusRequestedRangeNotSatisfiable {
		return t.discard()
	}
	return err
}

// contentRange parses the header Content-Range of a part of a file of known size: `bytes 5-9/10`.
func contentRange(header string) (first, last, size int64, ok bool) {
	unit, values, _ := strings.Cut(header, " ")
	span, sizeText, _ := strings.Cut(values, "/")
	firstText, lastText, _ := strings.Cut(span, "-")
	var numbers [3]uint64
	for i, text := range []string{firstText, lastText, sizeText} {
		number, err := strconv.ParseUint(text, 10, 63)
		if err != nil {
			return 0, 0, 0, false
		}
		numbers[i] = number
	}
	return int64(numbers[0]), int64(numbers[1]), int64(numbers[2]), strings.EqualFold(unit, "bytes")
}

// Document is a small response, read completely.
type Document struct {
	Body []byte
	// MediaType is the media type of the Content-Type header, without parameters; "": it is missing or can't be parsed.
	MediaType string
}

// Read requests a URL under the same rules as Fetch, and returns its body of at most so many bytes. Its errors are like
// those of Fetch.
func (c *Client) Read(parent context.Context, rawURL string, most int) (Document, error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	response, at, err := c.get(ctx, rawURL, nil)
	if err != nil {
		return Document{}, withURL(err, rawURL)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return Document{}, withURL(at.withRedirect(
			refuse("the server answered %s: 200 OK is needed", statusText(response.StatusCode))), rawURL)
	}
	var document Document
	err = c.stream(ctx, cancel, response.Body, func(some []byte) error {
		if len(document.Body)+len(some) > most {
			return refuse("the server's answer is larger than %d bytes", most)
		}
		document.Body = append(document.Body, some...)
		return nil
	})
	if err != nil {
		return Document{}, withURL(at.withRedirect(err), rawURL)
	}
	document.MediaType, _, _ = mime.ParseMediaType(response.Header.Get("Content-Type"))
	return document, nil
}

// Unchanged reports whether a URL certainly still yields the same bytes, without downloading them. Otherwise only a new
// download can show whether the digest is the same. Its errors are like those of Fetch; a URL that is no longer
// available is an error.
func (c *Client) Unchanged(ctx context.Context, rawURL string, was source.Fetched) (bool, error) {
	conditions := http.Header{}
	if was.ETag != "" {
		conditions.Set("If-None-Match", was.ETag)
	}
	if was.LastModified != "" {
		conditions.Set("If-Modified-Since", was.LastModified)
	}
	response, at, err := c.get(ctx, rawURL, conditions)
	if err != nil {
		return false, withURL(err, rawURL)
	}
	response.Body.Close()
	return isUnchanged(response, at, was), nil
}

// isUnchanged reports whether the headers prove that the bytes are the same. ETags and dates belong to one resource:
// they mean nothing after a redirect to another one, and the query of a redirect may name another resource, which a
// date alone does not distinguish. Another ETag does not prove other bytes: it may change with its metadata (RFC 9110,
// 8.8.1).
func isUnchanged(response *http.Response, at hop, was source.Fetched) bool {
	dated := was.LastModified != "" && at.redirects == 0
	etag, modified := response.Header.Get("ETag"), response.Header.Get("Last-Modified")
	switch {
	case source.Redact(at.url.String()) != was.FinalURL:
		return false
	case response.StatusCode == http.StatusNotModified:
		return was.ETag != "" || dated
	case response.StatusCode != http.StatusOK, response.ContentLength >= 0 && response.ContentLength != was.Bytes &&
		response.Header.Get("Content-Encoding") == "":
		return false
	case was.ETag != "" && etag != "":
		return opaque(etag) == opaque(was.ETag)
	}
	return dated && response.ContentLength == was.Bytes && modified == was.LastModified
}

// opaque returns the part of an ETag that If-None-Match compares: weak and strong ETags are equal (RFC 9110, 13.1.2).
func opaque(etag string) string { return strings.TrimPrefix(etag, "W/") }
