package download

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"slipway.io/slipway/release/source"
)

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
	case !ok, first != t.bytes, last != size-1, t.size >= 0 && size != t.size,
		response.ContentLength >= 0 && response.ContentLength != size-first,
		response.Header.Get("ETag") != t.result.ETag,
		source.Redact(at.url.String()) != t.result.FinalURL,
		!isFileTypeLabel(encoding(response), at.url):
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
