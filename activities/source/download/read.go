package download

import (
	"context"
	"mime"
	"net/http"
)

// Document is a small answer, read whole.
type Document struct {
	Body []byte
	// MediaType is the one that the server names, without parameters.
	MediaType string
}

// Read asks for a URL as Fetch does, and returns its body, which has at most so many bytes. Its errors are those of Fetch.
func (c *Client) Read(parent context.Context, rawURL string, most int) (Document, error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	response, at, err := c.get(ctx, rawURL, nil)
	if err != nil {
		return Document{}, named(err, rawURL)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return Document{}, named(at.told(refuse("the server answered %s: 200 OK is needed", statusText(response.StatusCode))), rawURL)
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
		return Document{}, named(at.told(err), rawURL)
	}
	// A type that can't be read is none.
	document.MediaType, _, _ = mime.ParseMediaType(response.Header.Get("Content-Type"))
	return document, nil
}
