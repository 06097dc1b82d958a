package pods

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDescribeEdits(t *testing.T) {
	t.Parallel()
	const base = `{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"app","image":"x:2"},{"name":"log","image":"l:1"}],"nodeSelector":{"a":"b"}}}`
	for _, c := range []struct{ reason, now, want string }{
		{"nothing differs", base, ""},
		{"an image with its values",
			`{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"app","image":"x:9"},{"name":"log","image":"l:1"}],"nodeSelector":{"a":"b"}}}`,
			"image of container app (x:9, was x:2)"},
		{"a variable without its value, which may be secret",
			`{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"app","image":"x:2","env":[{"name":"P","value":"s3cret"}]},` +
				`{"name":"log","image":"l:1"}],"nodeSelector":{"a":"b"}}}`, "spec.containers[app].env"},
		{"a removed container, and a field",
			`{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"app","image":"x:2"}],"nodeSelector":{"a":"c"}}}`,
			"spec.containers[log], spec.nodeSelector.a"},
		{"of many the first three",
			`{"metadata":{"labels":{"app":"w","b":"c"}},"spec":{"containers":[{"name":"app","image":"x:9"}]}}`,
			"metadata.labels.app, metadata.labels.b, image of container app (x:9, was x:2) and 2 more"},
	} {
		var was, now map[string]any
		require.NoError(t, json.Unmarshal([]byte(base), &was))
		require.NoError(t, json.Unmarshal([]byte(c.now), &now))
		require.Equal(t, c.want, DescribeEdits(was, now), c.reason)
	}
}
