package download

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"slipway.io/slipway/release/source"
)

// maxContinuations is how often one Fetch asks for the rest of a body that broke off. Whoever called may fetch again.
const maxContinuations = 5

// isStrong says whether an ETag stands for exact bytes (RFC 9110, 8.8.3). Parts of a file may be put together only by one that does.
func isStrong(etag string) bool { return len(etag) > 2 && etag[0] == '"' && etag[len(etag)-1] == '"' }

// continuable says whether another request can bring the rest, or the whole anew, after this error.
func (t *transfer) continuable(err error) bool {
	return Is(err, Temporary) && t.bytes > 0 && isStrong(t.told.ETag)
}

// rest is the header that asks for the rest of the file, or for the whole if it has changed meanwhile; nil: nothing is there yet.
func (t *transfer) rest() http.Header {
	if t.bytes == 0 {
		return nil
	}
	return http.Header{"Range": {fmt.Sprintf("bytes=%d-", t.bytes)}, "If-Range": {t.told.ETag}}
}

// resume holds a partial answer against what is in the file. The digest is not known beforehand, so that a part of another version would
// make a package that nobody has published.
func (t *transfer) resume(response *http.Response, at hop) error {
	first, last, size, ok := contentRange(response.Header.Get("Content-Range"))
	switch {
	case !ok, first != t.bytes, last != size-1, t.size >= 0 && size != t.size,
		response.ContentLength >= 0 && response.ContentLength != size-first,
		response.Header.Get("ETag") != t.told.ETag,
		source.Redact(at.url.String()) != t.told.FinalURL,
		!isLabel(encoding(response), at.url):
		return t.spoiled()
	case size > t.client.options.MaxBytes:
		return t.client.tooLarge()
	}
	t.size = size
	t.client.options.Log.Info("A download that broke off continues.", "url", t.told.FinalURL, "at", t.bytes, "of", size)
	return nil
}

// spoiled forgets what is in the file, so that nothing continues it.
func (t *transfer) spoiled() error {
	if err := t.reset(); err != nil {
		return err
	}
	return temporary("the download broke off, and the server did not continue the same file")
}

// unlessUnsatisfiable is err, unless it says that the file has no rest: then it is another file now, or the server can't continue.
func (t *transfer) unlessUnsatisfiable(err error) error {
	var failed *Error
	if t.bytes > 0 && errors.As(err, &failed) && failed.Status == http.StatusRequestedRangeNotSatisfiable {
		return t.spoiled()
	}
	return err
}

// contentRange reads the header Content-Range of one part of a file of known size: `bytes 5-9/10`.
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
