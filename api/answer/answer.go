// Package answer has what answers have in common: their media types, their statuses and how they write times.
package answer

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
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
