package kube_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"slipway.io/slipway/kube"
)

func TestNewestWarning(t *testing.T) {
	t.Parallel()
	at := func(second int) time.Time { return time.Unix(int64(1000+second), 0) }
	old := func(reason, message string, first, last int) *corev1.Event {
		return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: message}, Reason: reason,
			Message: message, FirstTimestamp: metav1.NewTime(at(first)), LastTimestamp: metav1.NewTime(at(last))}
	}
	series := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "series"}, Reason: "FailedCreate",
		Message: "series", EventTime: metav1.NewMicroTime(at(2)),
		Series: &corev1.EventSeries{LastObservedTime: metav1.NewMicroTime(at(60))}}
	for name, c := range map[string]struct {
		reason string
		events []runtime.Object
		want   kube.Warning
	}{
		"None":  {"an object without events", nil, kube.Warning{}},
		"Other": {"another reason", []runtime.Object{old("BackOff", "a", 1, 2)}, kube.Warning{}},
		"Newest": {"the newest of several, since the first one", []runtime.Object{old("FailedCreate", "b", 5, 9),
			old("FailedCreate", "c", 3, 30), old("FailedCreate", "d", 8, 8), old("BackOff", "e", 1, 99)},
			kube.Warning{Reason: "FailedCreate", Message: "c", First: at(3), Last: at(30)}},
		"Series": {"an event of events.k8s.io", []runtime.Object{old("FailedCreate", "b", 5, 9), series},
			kube.Warning{Reason: "FailedCreate", Message: "series", First: at(2), Last: at(60)}},
	} {
		client := fake.NewClientset(c.events...)
		got, err := kube.NewestWarning(context.Background(), client, "shop", "uid-1", []string{"FailedCreate"})
		require.NoError(t, err)
		require.Equal(t, c.want.Reason+c.want.Message, got.Reason+got.Message, "%s: %s", name, c.reason)
		require.True(t, c.want.First.Equal(got.First) && c.want.Last.Equal(got.Last), "%s: %s: %+v", name, c.reason, got)
		list := client.Actions()[0].(clienttesting.ListAction).GetListRestrictions().Fields.String()
		require.Contains(t, list, "involvedObject.uid=uid-1", "only the object's events are transferred")
	}
}
