package conversion

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/review"
)

// reviewKind is the kind of the API server's request and of the response.
const reviewKind = "ConversionReview"

// Bounds of one object in a review. An API server stores objects of up to 1.5 MiB, in which two tokens take three bytes
// at least: every stored object is below both bounds.
const (
	maxObject = 8 << 20
	maxTokens = 1_100_000
)

// read reads a conversion request. Together with an error it returns what it has read until then.
func read(request []byte) (review.Review, error) {
	r, err := review.Read(request, "uid", "desiredAPIVersion", "objects")
	if err != nil {
		return r, fmt.Errorf("the request is not a %s: %w", reviewKind, err)
	}
	return r, r.Check(apiextensionsv1.SchemeGroupVersion.String(), reviewKind)
}

// Review handles a conversion request of the API server, and returns the parts of the response. It converts all objects
// or none, and decodes one at a time. A body that is no such request is an error.
func Review(request []byte) ([][]byte, error) {
	r, err := read(request)
	if err != nil {
		return nil, err
	}
	to, converted := r.Text("desiredAPIVersion"), [][]byte(nil)
	if objects := r.Request["objects"]; objects != nil && objects.Kind() != 'n' {
		err = review.Elements(review.NewDecoder(objects), func(raw jsontext.Value) error {
			object, err := convertRaw(raw, to)
			converted = append(converted, object)
			return err
		})
	}
	if err != nil {
		return failure(r, err.Error()), nil
	}
	return respond(r, converted, metav1.Status{Status: metav1.StatusSuccess}), nil
}

// Refuse answers a review that isn't read to its end, from its beginning. why says why it isn't read, and what to do.
func Refuse(beginning []byte, why string) ([][]byte, error) {
	r, err := read(beginning)
	if r.Request["uid"] == nil || r.Check(apiextensionsv1.SchemeGroupVersion.String(), reviewKind) != nil {
		return nil, err
	}
	return failure(r, why), nil
}

func failure(r review.Review, why string) [][]byte {
	return respond(r, nil, metav1.Status{Status: metav1.StatusFailure, Message: why})
}

// respond returns the parts of a response: a single buffer would have to be twice as large while it grows.
func respond(r review.Review, converted [][]byte, result metav1.Status) [][]byte {
	text := func(value string) string { return string(jsonpatch.Encode(value)) }
	parts := [][]byte{[]byte(`{"kind":` + text(r.Kind) + `,"apiVersion":` + text(r.APIVersion) + `,"response":{"uid":` +
		text(r.Text("uid")) + `,"convertedObjects":[`)}
	for i, object := range converted {
		if i > 0 {
			parts = append(parts, []byte(","))
		}
		parts = append(parts, object)
	}
	return append(parts, []byte(`],"result":`+string(jsonpatch.Encode(result))+`}}`))
}

func convertRaw(raw jsontext.Value, to string) ([]byte, error) {
	if len(raw) > maxObject {
		return nil, fmt.Errorf("an object has %d bytes of JSON, and may have %d", len(raw), maxObject)
	}
	if raw.Kind() == 'n' {
		return nil, errors.New("an object is missing")
	}
	if err := review.CheckTokens(raw, maxTokens); err != nil {
		return nil, err
	}
	object, err := jsonpatch.ParseObject(raw)
	if err != nil {
		return nil, err
	}
	if err := Convert(object, to); err != nil {
		return nil, err
	}
	return object.MarshalJSON()
}
