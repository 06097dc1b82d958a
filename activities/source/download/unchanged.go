package download

import (
	"context"
	"net/http"
	"strings"

	"slipway.io/slipway/release/source"
)

// Answer is what a server says about an earlier download.
type Answer string

const (
	// Unchanged: the server says that it is still the same.
	Unchanged Answer = "Unchanged"
	// Changed: a download would now yield other bytes, for certain.
	Changed Answer = "Changed"
	// Unknown: only downloading it again and comparing the digest can tell.
	Unknown Answer = "Unknown"
)

// Unchanged asks whether a URL still yields what it did, without downloading it. Errors are as of Fetch; what has gone is an error.
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
		return Unknown, named(err, rawURL)
	}
	response.Body.Close()
	return compare(response, at, was), nil
}

// compare is careful in both directions. Another ETag or date doesn't prove other bytes: an ETag may change with its metadata (RFC 9110, 8.8.1),
// and differs between servers behind one balancer that derive it from their own files. Another length proves it.
func compare(response *http.Response, at hop, was Download) Answer {
	// ETags and dates are of one resource: after a redirect to another they mean nothing.
	same := source.Redact(at.url.String()) == was.FinalURL
	switch response.StatusCode {
	case http.StatusNotModified:
		// A redirect's query may name another resource, which a date would not tell apart.
		if same && (was.ETag != "" || was.LastModified != "" && at.redirects == 0) {
			return Unchanged
		}
		return Unknown
	case http.StatusOK:
	default:
		return Unknown
	}
	if response.ContentLength >= 0 && response.ContentLength != was.Bytes && response.Header.Get("Content-Encoding") == "" {
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

// opaque is the part of an ETag that If-None-Match compares: strong and weak ones are equal (RFC 9110, 13.1.2).
func opaque(etag string) string { return strings.TrimPrefix(etag, "W/") }
