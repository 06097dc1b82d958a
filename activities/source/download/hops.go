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

// hop is one request on the way from the URL that was asked for to the answer.
type hop struct {
	url *url.URL
	// trusted: the URL is of our own store, and so was asked for: never by a redirect.
	trusted bool
	// fallen: an earlier hop was encrypted and this one is not, so that credentials must not be sent.
	fallen    bool
	redirects int
}

// get asks for a URL and follows redirects, each of which is checked like the first. The answer has a status below 400; its body is to be closed.
func (c *Client) get(ctx context.Context, rawURL string, header http.Header) (*http.Response, hop, error) {
	first, err := source.ParseURL(rawURL)
	if err != nil {
		return nil, hop{}, c.trouble(ctx, err)
	}
	secured := false
	for at := (hop{url: first, trusted: c.isTrusted(first)}); ; {
		secured = secured || at.url.Scheme == "https"
		at.fallen = secured && at.url.Scheme != "https"
		response, err := c.ask(ctx, at, header)
		if err != nil {
			return nil, hop{}, at.told(err)
		}
		if !isRedirect(response.StatusCode) {
			if err := c.judge(response, at); err != nil {
				response.Body.Close()
				return nil, hop{}, at.told(err)
			}
			return response, at, nil
		}
		response.Body.Close()
		if at, err = at.next(response); err != nil {
			return nil, hop{}, err
		}
	}
}

// told names the URL of a redirect in an error, which otherwise names only the URL that was asked for.
func (h hop) told(err error) error {
	if failed, ok := err.(*Error); ok && h.redirects > 0 { //nolint:errorlint // made by us, and not wrapped yet
		failed.Message = fmt.Sprintf("redirected to %s: %s", source.Redact(h.url.String()), failed.Message)
	}
	return err
}

func isRedirect(status int) bool {
	return slices.Contains([]int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect,
		http.StatusPermanentRedirect}, status)
}

// next is where a redirect leads.
func (h hop) next(response *http.Response) (hop, error) {
	location := response.Header.Get("Location")
	switch {
	case h.trusted:
		return hop{}, refuse("the package store answered with a redirect, which it never does: check its address")
	case h.redirects == maxRedirects:
		return hop{}, refuse("there are more than %d redirects", maxRedirects)
	case location == "":
		return hop{}, refuse("the server answered with a redirect that leads nowhere")
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

// ask makes one request. Only the header is read.
func (c *Client) ask(ctx context.Context, at hop, header http.Header) (*http.Response, error) {
	u, transport := *at.url, c.unchecked
	u.Fragment, u.RawFragment = "", ""
	request := (&http.Request{Method: http.MethodGet, URL: &u, Header: header.Clone()}).WithContext(ctx)
	if request.Header == nil {
		request.Header = http.Header{}
	}
	// The digest is over the bytes of the file, so that nobody may compress them on the way.
	request.Header.Set("Accept-Encoding", "identity")
	request.Header.Set("User-Agent", "slipway")
	if !at.trusted {
		host, port, err := source.Authority(&u)
		if err == nil {
			err = c.options.Allow.CheckHost(host, port)
		}
		if err != nil {
			return nil, c.trouble(ctx, err)
		}
		transport = c.checked
		c.authorise(request, at)
	}
	began := time.Now()
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, c.trouble(ctx, err)
	}
	c.options.Log.DebugContext(ctx, "Asked a source.", "url", source.Redact(u.String()), "status", response.StatusCode, "took", time.Since(began))
	return response, nil
}

// mayTell says whether the credentials may be sent to a hop.
func (c *Client) mayTell(at hop) bool {
	return c.options.Credentials != nil && !at.trusted && !at.fallen && c.options.Credentials.Named(at.url)
}

// WouldTell refuses credentials that would not be sent to a URL.
func (c *Client) WouldTell(rawURL string) error {
	at, err := source.ParseURL(rawURL)
	if err != nil {
		return err
	}
	if c.options.Credentials != nil && !c.options.Credentials.Named(at) {
		return refuse("the Secret has no credentials for %s://%s: name it under the key `hosts`", at.Scheme, at.Host)
	}
	return nil
}

func (c *Client) authorise(request *http.Request, at hop) {
	if !c.mayTell(at) {
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

// judge says what an answer that is no redirect means; nil: the status is below 400. A status is told in our words, for the server's may
// repeat the request.
func (c *Client) judge(response *http.Response, at hop) error {
	status := response.StatusCode
	if status < http.StatusBadRequest {
		return nil
	}
	failed := &Error{Kind: Gone, Status: status, Message: "the server answered " + statusText(status)}
	switch {
	case status >= http.StatusInternalServerError, status == http.StatusRequestTimeout, status == http.StatusTooEarly,
		status == http.StatusTooManyRequests:
		failed.Kind = Temporary
		failed.RetryAfter = wish(response.Header.Get("Retry-After"), time.Now())
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
	case c.mayTell(at):
		return ": check the credentials"
	case at.fallen:
		return ": no credentials were sent, because a redirect led from https to http"
	}
	return ": no credentials were sent, because their Secret does not name this scheme, host and port in `hosts`"
}

func statusText(status int) string {
	if text := http.StatusText(status); text != "" {
		return fmt.Sprintf("%d %s", status, text)
	}
	return fmt.Sprintf("%d", status)
}
