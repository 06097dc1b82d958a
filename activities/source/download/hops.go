package download

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"slipway.io/slipway/release/source"
)

const maxRedirects = 10

// hop is one request on the path from the requested URL over redirects to the final response.
type hop struct {
	url *url.URL
	// trusted: the requested URL is one of the party's own store. A redirect target is never trusted.
	trusted bool
	// downgraded: an earlier hop used https and this one does not, so credentials must not be sent.
	downgraded bool
	redirects  int
}

// get requests a URL and follows redirects, each of which is checked like the first URL. The response has a status
// below 400; the caller closes its body.
func (c *Client) get(ctx context.Context, rawURL string, header http.Header) (*http.Response, hop, error) {
	first, err := source.ParseURL(rawURL)
	if err != nil {
		return nil, hop{}, c.classify(ctx, err)
	}
	secured := false
	for at := (hop{url: first, trusted: c.isTrusted(first)}); ; {
		secured = secured || at.url.Scheme == "https"
		at.downgraded = secured && at.url.Scheme != "https"
		response, err := c.roundTrip(ctx, at, header)
		if err != nil {
			return nil, hop{}, at.withRedirect(err)
		}
		if !isRedirect(response.StatusCode) {
			if err := c.checkStatus(response, at); err != nil {
				response.Body.Close()
				return nil, hop{}, at.withRedirect(err)
			}
			return response, at, nil
		}
		response.Body.Close()
		if at, err = at.next(response); err != nil {
			return nil, hop{}, err
		}
	}
}

// withRedirect adds the URL of a redirect to an error's message; the error otherwise names only the requested URL.
func (h hop) withRedirect(err error) error {
	//nolint:errorlint // made by this package, and not wrapped yet
	if failed, ok := err.(*Error); ok && h.redirects > 0 {
		failed.Message = fmt.Sprintf("redirected to %s: %s", source.Redact(h.url.String()), failed.Message)
	}
	return err
}

func isRedirect(status int) bool {
	return slices.Contains([]int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect,
		http.StatusPermanentRedirect}, status)
}

// next returns the hop that a redirect leads to.
func (h hop) next(response *http.Response) (hop, error) {
	location := response.Header.Get("Location")
	switch {
	case h.trusted:
		return hop{}, refuse("the package store answered with a redirect, which it never does: check its address")
	case h.redirects == maxRedirects:
		return hop{}, refuse("there are more than %d redirects", maxRedirects)
	case location == "":
		return hop{}, refuse("the server answered with a redirect without a target")
	}
	target, err := h.url.Parse(location)
	if err != nil {
		return hop{}, refuse("the server answered with a redirect to something that is not a URL")
	}
	if err := source.CheckURL(target); err != nil {
		return hop{}, refuse("redirected to %s: %v", source.Redact(target.String()), err)
	}
	return hop{url: target, redirects: h.redirects + 1}, nil
}

// roundTrip makes one request. The body of the response is not read.
func (c *Client) roundTrip(ctx context.Context, at hop, header http.Header) (*http.Response, error) {
	u, transport := *at.url, c.unchecked
	u.Fragment, u.RawFragment = "", ""
	request := (&http.Request{Method: http.MethodGet, URL: &u, Header: header.Clone()}).WithContext(ctx)
	if request.Header == nil {
		request.Header = http.Header{}
	}
	// The digest is over the bytes of the file, so the transfer must not compress them.
	request.Header.Set("Accept-Encoding", "identity")
	request.Header.Set("User-Agent", "slipway")
	if !at.trusted {
		host, port, err := source.Authority(&u)
		if err == nil {
			err = c.options.Allow.CheckHost(host, port)
		}
		if err != nil {
			return nil, c.classify(ctx, err)
		}
		transport = c.checked
		c.authorise(request, at)
	}
	began := time.Now()
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, c.classify(ctx, err)
	}
	c.options.Log.DebugContext(ctx, "Requested a source.", "url", source.Redact(u.String()), "status",
		response.StatusCode, "took", time.Since(began))
	return response, nil
}

// maySendCredentials reports whether the credentials may be sent to a hop.
func (c *Client) maySendCredentials(at hop) bool {
	return c.options.Credentials != nil && !at.trusted && !at.downgraded && c.options.Credentials.Allows(at.url)
}

// CheckCredentials returns an error if there are credentials that would not be sent to a URL.
func (c *Client) CheckCredentials(rawURL string) error {
	at, err := source.ParseURL(rawURL)
	if err != nil {
		return err
	}
	if c.options.Credentials != nil && !c.options.Credentials.Allows(at) {
		return refuse("the Secret has no credentials for %s://%s: name it under the key `hosts`", at.Scheme, at.Host)
	}
	return nil
}

// authorise adds the credentials to a request, if they may be sent to its URL.
func (c *Client) authorise(request *http.Request, at hop) {
	if !c.maySendCredentials(at) {
		return
	}
	if header := c.options.Credentials.Authorization(at.url); header != "" {
		request.Header.Set("Authorization", header)
	}
	query := c.options.Credentials.Query
	switch {
	case query == "", strings.Contains("&"+at.url.RawQuery+"&", "&"+query+"&"): // a redirect may have kept it
	case at.url.RawQuery == "":
		request.URL.RawQuery = query
	default:
		request.URL.RawQuery = at.url.RawQuery + "&" + query
	}
}

// checkStatus returns the error of a response with a status of 400 or more; nil for all others. The message uses Go's
// text of the status, because the server's own may echo the request.
func (c *Client) checkStatus(response *http.Response, at hop) error {
	status := response.StatusCode
	if status < http.StatusBadRequest {
		return nil
	}
	failed := &Error{Kind: NotAvailable, Status: status, Message: "the server answered " + statusText(status)}
	switch {
	case status >= http.StatusInternalServerError, status == http.StatusRequestTimeout, status == http.StatusTooEarly,
		status == http.StatusTooManyRequests:
		failed.Kind = Temporary
		failed.RetryAfter = parseRetryAfter(response.Header.Get("Retry-After"), time.Now())
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		failed.Message += c.whyForbidden(at)
	default:
		failed.Message += ": check the URL"
	}
	return failed
}

func (c *Client) whyForbidden(at hop) string {
	switch {
	case c.options.Credentials == nil || at.trusted:
		return ": no credentials were sent"
	case c.maySendCredentials(at):
		return ": check the credentials"
	case at.downgraded:
		return ": no credentials were sent, because a redirect led from https to http"
	}
	return ": no credentials were sent, because their Secret does not name this scheme, host and port in `hosts`"
}

func statusText(status int) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", status, http.StatusText(status)))
}
