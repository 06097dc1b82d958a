package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AnnotationID holds the ID of an object whose name cannot be its ID.
const AnnotationID = "slipway.io/id"

// ObjectName is the name of the object of a service or plan of that ID. It is the ID itself, except that Kubernetes has no capital letters
// in names: an ID with some is made lower-case and told apart by a digest, and AnnotationID keeps it as it is spelled.
func ObjectName(id string) string {
	lower := strings.ToLower(id)
	if lower == id {
		return id
	}
	digest := sha256.Sum256([]byte(id))
	return lower + "-" + hex.EncodeToString(digest[:5])
}

// IDOf is the ID of a service or plan, the reverse of ObjectName.
func IDOf(object metav1.Object) string {
	if id := object.GetAnnotations()[AnnotationID]; id != "" && ObjectName(id) == object.GetName() {
		return id
	}
	return object.GetName()
}
