package instant_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/validation/strfmt"

	"slipway.io/slipway/release/instant"
)

func TestMicro_ReadsEveryDateTimeThatAPIServerAccepts(t *testing.T) {
	t.Parallel()
	second := time.Date(2026, 3, 1, 9, 0, 5, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"2026-03-01T09:00:05.000000Z":         second,
		"2026-03-01T09:00:05Z":                second,
		"2026-03-01T11:00:05+02:00":           second,
		"2026-03-01T09:00:05.25Z":             second.Add(250 * time.Millisecond),
		"2026-03-01T09:00:05.123456789+00:00": second.Add(123456789 * time.Nanosecond),
		"2026-03-01t09:00:05z":                second,
		"2026-03-01T09:00:05+99:99":           {}, // accepted, although it is not a valid time
	} {
		require.True(t, strfmt.IsDateTime(text), "%s is accepted as a date-time", text)
		var at instant.Micro
		require.NoError(t, json.Unmarshal([]byte(`"`+text+`"`), &at), text)
		require.True(t, want.Equal(at.Time), "%s: %s", text, at)
	}
	var at *instant.Micro
	require.NoError(t, json.Unmarshal([]byte(`null`), &at))
	require.Nil(t, at)
	require.Error(t, json.Unmarshal([]byte(`7`), &instant.Micro{}), "no API server accepts that")
}

func TestMicro_IsWrittenLikeMicroTime(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 9, 0, 5, 123456000, time.UTC)
	ours, err := json.Marshal(instant.MicroOf(at))
	require.NoError(t, err)
	theirs, err := json.Marshal(metav1.NewMicroTime(at))
	require.NoError(t, err)
	require.Equal(t, string(theirs), string(ours))
	var again metav1.MicroTime
	require.NoError(t, json.Unmarshal(ours, &again), "earlier builds can read it")
}
