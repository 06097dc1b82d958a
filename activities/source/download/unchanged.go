package download

import (
	"context"
	"net/http"
	"strings"

	"slipway.io/slipway/release/source"
)

// Answer is the result of comparing a URL with an earlier download.
type Answer string

const (
	// Unchanged: the server reports the same version.
	Unchanged Answer = "Unchanged"
	// Changed: a download would certainly yield other bytes.
	Changed Answer = "Changed"
	// Unknown: only a new download can show whether the digest is the same.
	Unknown Answer = "Unknown"
)

// Unchanged checks whether a URL still yields the same bytes, without downloading them. Its errors are like those of
// Fetch; a URL that is no longer available is an error.
func (c *Client) Unchanged(ctx context.Context, rawURL string, was Download) (Answer, error) {
	conditions := http.Header{}
	if was.ETag != "" {
		conditions.Set("If-None-Match", was.ETag)
	}
	if was.LastModified != "" {
		conditions.Set("If-Modified-Since", was.LastModified)
	}
	response, at, err := c.get(ctx, rawURL, conditions)
	if err != nil {
		return Unknown, withURL(err, rawURL)
	}
	response.Body.Close()
	return compare(response, at, was), nil
}

// compare returns Unchanged or Changed only if the headers prove it. Another ETag or date does not prove other bytes:
// an ETag may change with its metadata (RFC 9110, 8.8.1), and differs between servers behind one load balancer that
// derive it from their own files. Another length proves it.
func compare(response *http.Response, at hop, was Download) Answer {
	// ETags and dates belong to one resource: they mean nothing after a redirect to another one.
	same := source.Redact(at.url.String()) == was.FinalURL
	switch response.StatusCode {
	case http.StatusNotModified:
		// The query of a redirect may name another resource, which a date alone does not distinguish.
		if same && (was.ETag != "" || was.LastModified != "" && at.redirects == 0) {
			return Unchanged
		}
		return Unknown
	case http.StatusOK:
	default:
		return Unknown
	}
	if response.ContentLength >= 0 && response.ContentLength != was.Bytes &&
		response.Header.Get("Content-Encoding") == "" {
		return Changed
	}
	etag, modified := response.Header.Get("ETag"), response.Header.Get("Last-Modified")
	switch {
	case !same:
		return Unknown
	case was.ETag != "" && etag != "":
		return unchangedIf(opaque(etag) == opaque(was.ETag))
	case was.LastModified != "" && at.redirects == 0 && response.ContentLength == was.Bytes:
		return unchangedIf(modified == was.LastModified)
	}
	return Unknown
}

func unchangedIf(same bool) Answer {
	if same {
		return Unchanged
	}
	return Unknown
}

// opaque returns the part of an ETag that If-None-Match compares: weak and strong ETags are equal (RFC 9110, 13.1.2).
func opaque(etag string) string { return strings.TrimPrefix(etag, "W/") }
