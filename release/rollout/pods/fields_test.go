package pods

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/workload"
)

func templateFrom(t *testing.T, text string) (out map[string]any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &out))
	return out
}

func TestChangedFields(t *testing.T) {
	t.Parallel()
	const base = `{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"app","image":"x:1","args":["--token=old"],"env":[{"name":"MODE","value":"a"},{"name":"KEY","value":"secret"}]}]}}`
	for _, c := range []struct {
		reason, now string
		want        []workload.FieldChange
	}{
		{"nothing changes", base, nil},
		{"images and labels are shown; values of the environment and arguments are not",
			`{"metadata":{"labels":{"app":"web","tier":"1"}},"spec":{"containers":[{"name":"app","image":"x:2","args":["--token=new"],"env":[{"name":"MODE","value":"b"}]}]}}`,
			[]workload.FieldChange{{Field: "metadata.labels.tier", To: "1"},
				{Field: "spec.containers[app].image", From: "x:1", To: "x:2"},
				{Field: "spec.containers[app].args", Hidden: true},
				{Field: "spec.containers[app].env[KEY]", From: "{…}"},
				{Field: "spec.containers[app].env[MODE].value", Hidden: true}}},
		{"annotations of others are named, Slipway's are shown",
			`{"metadata":{"labels":{"app":"web"},"annotations":{"vault.test/role":"admin","slipway.io/package":"sha256:ab"}},"spec":{"containers":[{"name":"app","image":"x:1","args":["--token=old"],"env":[{"name":"MODE","value":"a"},{"name":"KEY","value":"secret"}]}]}}`,
			[]workload.FieldChange{{Field: "metadata.annotations.slipway.io/package", To: "sha256:ab"},
				{Field: "metadata.annotations.vault.test/role", Hidden: true}}},
	} {
		got := ChangedFields(templateFrom(t, base), templateFrom(t, c.now))
		require.Equal(t, c.want, got, c.reason)
		for _, secret := range []string{"secret", "token", "admin"} {
			require.NotContains(t, fmt.Sprint(got), secret, c.reason)
		}
	}
	require.Equal(t, []workload.FieldChange{{Field: "spec.containers[app].image", From: "x",
		To: "http://h.test/a?…"}},
		ChangedFields(templateFrom(t, `{"spec":{"containers":[{"name":"app","image":"x"}]}}`),
			templateFrom(t, `{"spec":{"containers":[{"name":"app","image":"http://h.test/a?sig=1"}]}}`)),
		"queries of URLs are left out in every field")
	many := map[string]any{}
	for i := range 100 {
		many[fmt.Sprintf("l%03d", i)] = "x"
	}
	got := ChangedFields(nil, map[string]any{"metadata": map[string]any{"labels": many}})
	require.Len(t, got, 41)
	require.Equal(t, "and 60 more", got[40].Field)
}
