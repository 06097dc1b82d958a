package answer

import (
	"mime"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/api/problem"
)

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
