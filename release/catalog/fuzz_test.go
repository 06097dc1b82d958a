package catalog

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func FuzzDecodeService(f *testing.F) {
	for _, seed := range []string{
		wholeEntry, change("", ""),
		`{"workloads":[{"namespace":"a","workloadRef":{"apiVersion":"apps/v1","kind":"DaemonSet","name":"b"},"labels":["x"]}]}`,
		"workloads: &a [*a]", "build: {jobTemplate: {a: {<<: {b: .nan}}}}\n", "strategy:\n\t- x",
		"workloads:\n- ? [a]\n  : b\n   ...\n", "{", "\x00",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		begin := time.Now()
		s, errs := Decode(data)
		require.Less(t, time.Since(begin), 10*time.Second)
		if len(errs) > 0 {
			for _, one := range errs {
				require.Positive(t, one.Line, "every error has its line: %v", one)
				require.NotEmpty(t, one.Reason)
			}
			return
		}
		require.Empty(t, s.Validate(), "what Decode accepts, Validate accepts")
		raw, err := json.Marshal(s)
		require.NoError(t, err)
		again, errs := Decode(raw)
		require.NoError(t, errs.Err(), "the encoded entry can be decoded")
		if s.Build != nil { // compared separately as JSON: HTML escapes and the order of keys may differ
			require.JSONEq(t, string(s.Build.JobTemplate.Raw), string(again.Build.JobTemplate.Raw))
			s.Build, again.Build = nil, nil
		}
		require.Equal(t, s, again, "and is unchanged")
	})
}
