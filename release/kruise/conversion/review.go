package conversion

import (
	"encoding/json"
	"errors"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// reviewKind is the kind of the API server's request and of the response.
const reviewKind = "ConversionReview"

// Review handles a conversion request of the API server. It converts all objects or none. A body that is no such
// request is an error.
func Review(request []byte) ([]byte, error) {
	var review apiextensionsv1.ConversionReview
	if err := json.Unmarshal(request, &review); err != nil {
		return nil, fmt.Errorf("the request is not a %s: %w", reviewKind, err)
	}
	if version := apiextensionsv1.SchemeGroupVersion.String(); review.APIVersion != version ||
		review.Kind != reviewKind || review.Request == nil {
		return nil, fmt.Errorf("the request is not a %s of %s with a request", reviewKind, version)
	}
	response := &apiextensionsv1.ConversionResponse{UID: review.Request.UID,
		Result:           metav1.Status{Status: metav1.StatusSuccess},
		ConvertedObjects: []runtime.RawExtension{}}
	for _, raw := range review.Request.Objects {
		converted, err := convertRaw(raw.Raw, review.Request.DesiredAPIVersion)
		if err != nil {
			response.ConvertedObjects = nil
			response.Result = metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}
			break
		}
		response.ConvertedObjects = append(response.ConvertedObjects, runtime.RawExtension{Raw: converted})
	}
	return json.Marshal(apiextensionsv1.ConversionReview{TypeMeta: review.TypeMeta, Response: response})
}

func convertRaw(raw []byte, to string) ([]byte, error) {
	if len(raw) == 0 {
		return nil, errors.New("an object is missing")
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(raw); err != nil {
		return nil, fmt.Errorf("an object can't be read: %w", err)
	}
	if err := Convert(object, to); err != nil {
		return nil, err
	}
	return object.MarshalJSON()
}
