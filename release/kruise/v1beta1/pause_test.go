package v1beta1_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/kruise/v1beta1"
)

func TestPause(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason, text string
		want         *int32
		refused      bool
	}{
		"Absent":  {"waits for an approval", `{}`, nil, false},
		"Empty":   {"as the specification prints an absent one", `{"duration":{}}`, nil, false},
		"Null":    {"the same", `{"duration":null}`, nil, false},
		"Zero":    {"continues at once", `{"duration":0}`, new(int32(0)), false},
		"Seconds": {"a time", `{"duration":7200}`, new(int32(7200)), false},
		"Text":    {"no number", `{"duration":"5m"}`, nil, true},
		"Large":   {"more than 32 bits", `{"duration":2147483648}`, nil, true},
		"List":    {"no object", `[]`, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pause := v1beta1.RolloutPause{Duration: new(int32(5))}
			err := json.Unmarshal([]byte(test.text), &pause)
			if test.refused {
				require.Error(t, err, test.reason)
				return
			}
			require.NoError(t, err, test.reason)
			require.Equal(t, test.want, pause.Duration, test.reason)
		})
	}
}
