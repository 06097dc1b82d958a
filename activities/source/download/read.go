package download

import (
	"context"
	"mime"
	"net/http"
)

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
