package download

import (
	"context"
	"net/http"
	"strings"

	"slipway.io/slipway/release/source"
)

// Unchanged reports whether a URL certainly still yields the same bytes, without downloading them. Otherwise only a new
// download can show whether the digest is the same. Its errors are like those of Fetch; a URL that is no longer available
// is an error.
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

// isUnchanged reports whether the headers prove that the bytes are the same. ETags and dates belong to one resource: they
// mean nothing after a redirect to another one, and the query of a redirect may name another resource, which a date alone
// does not distinguish. Another ETag does not prove other bytes: it may change with its metadata (RFC 9110, 8.8.1).
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
