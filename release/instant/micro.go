// Package instant provides the timestamp type of API objects.
// +kubebuilder:object:generate=true
package instant

import (
	"encoding/json"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
)

// Micro is a metav1.MicroTime that is written like one, to the microsecond, but accepts every date-time that an API
// server accepts. An API server accepts more than a MicroTime can be read from, which requires a fraction of a second
// (https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation). One
// object that cannot be decoded would keep a watch from delivering all others. A text that is not a valid time becomes
// the zero time.
//
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:Format=date-time
type Micro struct {
	metav1.MicroTime `json:",inline"`
}

// MicroOf returns a time as a Micro.
func MicroOf(at time.Time) Micro { return Micro{metav1.NewMicroTime(at)} }

// UnmarshalJSON implements json.Unmarshaler. The result is in local time, like that of metav1.MicroTime.
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
