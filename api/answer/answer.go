// Package answer has what answers have in common: their media types, their statuses and how they write times.
package answer

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/api/problem"
)

// PutStatus is the status of a PUT that was carried out.
func PutStatus(created bool) int {
	if created {
		return http.StatusCreated
	}
	return http.StatusOK
}

// NoContent is the answer to a deletion: the error, if there is one.
func NoContent(c echo.Context, err error) error {
	if err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// JSON answers a value, or the error of whatever was to find it.
func JSON(c echo.Context, value any, err error) error {
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, value)
}

// UTC is how a time is answered.
func UTC(t time.Time) *time.Time {
	t = t.UTC()
	return &t
}

// Document answers a document as JSON or, where the caller asks for that, as YAML.
func Document[D any](c echo.Context, read func() (D, error), yaml func(D) ([]byte, error)) error {
	form, err := Type(c, TypeJSON, TypeYAML)
	if err != nil {
		return err
	}
	document, err := read()
	if err != nil {
		return err
	}
	if form == TypeJSON {
		return c.JSON(http.StatusOK, document)
	}
	text, err := yaml(document)
	if err != nil {
		return err
	}
	return c.Blob(http.StatusOK, TypeYAML, text)
}

// The media types of answers and documents.
const (
	TypeJSON     = "application/json"
	TypeYAML     = "application/yaml"
	TypeMarkdown = "text/markdown"
)

// Type is the offered type that the request's Accept header likes best, the first of the offers where it likes several alike or says
// nothing.
func Type(c echo.Context, offers ...string) (string, error) {
	header := strings.Join(c.Request().Header.Values(echo.HeaderAccept), ",")
	if strings.TrimSpace(header) == "" {
		return offers[0], nil
	}
	best, bestQuality := "", 0.0
	for _, offer := range offers {
		if quality := acceptQuality(header, offer); quality > bestQuality {
			best, bestQuality = offer, quality
		}
	}
	if best == "" {
		return "", problem.NotAcceptable.Because("Accept is %q: the answer exists as %s", header, strings.Join(offers, " and "))
	}
	return best, nil
}

// acceptQuality is how much an Accept header wants a type, from 0 (not at all) to 1; the most specific range that matches decides (RFC
// 9110 §12.5.1).
func acceptQuality(header, offer string) float64 {
	quality, decidedBy := 0.0, 0
	for entry := range strings.SplitSeq(header, ",") {
		accepted, parameters, err := mime.ParseMediaType(strings.TrimSpace(entry))
		if err != nil {
			continue
		}
		specific := rangeMatch(accepted, offer)
		if specific <= decidedBy {
			continue
		}
		decidedBy, quality = specific, 1
		if text, ok := parameters["q"]; ok {
			if quality, err = strconv.ParseFloat(text, 64); err != nil {
				quality = 0
			}
		}
	}
	return quality
}

// rangeMatch is 3 for the very type, 2 for "text/*", 1 for "*/*", 0 for no match. The older names of YAML mean the same as the present one.
func rangeMatch(accepted, offer string) int {
	switch {
	case accepted == offer, offer == TypeYAML && (accepted == "application/x-yaml" || accepted == "text/yaml" || accepted == "text/x-yaml"):
		return 3
	case strings.HasSuffix(accepted, "/*") && strings.HasPrefix(offer, strings.TrimSuffix(accepted, "*")):
		return 2
	case accepted == "*/*":
		return 1
	}
	return 0
}
