package kube

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
)

// Warning is what the events of an object report.
type Warning struct {
	Reason, Message string
	// Last is when it was last reported; First is when any warning with one of the reasons was first reported: that of
	// a pod with a random name is another one at each attempt.
	First, Last time.Time
}

// NewestWarning returns the newest warning among the events of one object that has one of these reasons; its Reason is
// "" if there is none. Only the events of that object are transferred.
func NewestWarning(ctx context.Context, client Typed, namespace string, of types.UID, reasons []string) (Warning,
	error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	selector := fields.Set{"involvedObject.uid": string(of), "type": corev1.EventTypeWarning}.AsSelector()
	list, err := client.CoreV1().Events(namespace).List(call, metav1.ListOptions{FieldSelector: selector.String()})
	if err != nil {
		return Warning{}, err
	}
	var newest Warning
	for i := range list.Items {
		w := warning(&list.Items[i])
		if !slices.Contains(reasons, w.Reason) {
			continue
		}
		if newest.Reason != "" && newest.First.Before(w.First) {
			w.First = newest.First
		}
		if !w.Last.Before(newest.Last) {
			newest = w
		}
		newest.First = w.First
	}
	return newest, nil
}

// warning reads an event. Clients of events.k8s.io set EventTime and a series, older ones the two timestamps.
func warning(e *corev1.Event) Warning {
	w := Warning{Reason: e.Reason, Message: e.Message, First: e.FirstTimestamp.Time, Last: e.LastTimestamp.Time}
	if w.First.IsZero() {
		w.First = e.EventTime.Time
	}
	if e.Series != nil && e.Series.LastObservedTime.After(w.Last) {
		w.Last = e.Series.LastObservedTime.Time
	}
	if w.Last.IsZero() {
		w.Last = w.First
	}
	if w.Last.IsZero() {
		w.First, w.Last = e.CreationTimestamp.Time, e.CreationTimestamp.Time
	}
	return w
}
