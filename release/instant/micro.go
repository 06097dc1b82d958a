// Package instant is how objects say when something was.
package instant

import (
	"encoding/json"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
)

// Micro is a metav1.MicroTime that is written in the same way, to the microsecond, and read as whoever else may have written it. An API server takes more for a
// date-time than a MicroTime is read from, which wants a fraction of a second
// (https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation), and one object that cannot be read keeps a watch
// from telling of all others. What is no time at all is the zero time.
//
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:Format=date-time
type Micro struct {
	metav1.MicroTime `json:",inline"`
}

// MicroOf is a time as a Micro.
func MicroOf(at time.Time) Micro { return Micro{metav1.NewMicroTime(at)} }

// UnmarshalJSON implements json.Unmarshaler. The result is local time, as that of metav1.MicroTime is.
func (m *Micro) UnmarshalJSON(raw []byte) error {
	var text string // null leaves it empty
	if err := json.Unmarshal(raw, &text); err != nil {
		return err
	}
	m.Time = time.Time{}
	if at, err := strfmt.ParseDateTime(strings.ToUpper(text)); err == nil && text != "" {
		m.Time = time.Time(at).Local()
	}
	return nil
}

// DeepCopyInto copies m.
func (m *Micro) DeepCopyInto(out *Micro) { *out = *m }

// DeepCopy is a copy of m.
func (m *Micro) DeepCopy() *Micro {
	if m == nil {
		return nil
	}
	return new(*m)
}
