package source

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBuckets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ reason, text, name, prefix, problem string }{
		{"A bucket of its own.", "s3://packages", "packages", "", ""},
		{"A trailing slash.", "s3://packages/", "packages", "", ""},
		{"A prefix in a bucket.", "s3://releases.example.com/slipway/packages", "releases.example.com",
			"slipway/packages/", ""},
		{"A prefix with its slash.", "s3://packages/slipway/", "packages", "slipway/", ""},
		{"A folder.", "/var/lib/packages", "", "", "give s3://name"},
		{"The service's address is another setting.", "https://minio.example/packages", "", "", "give s3://name"},
		{"Keys don't belong here.", "s3://key:secret@packages", "", "", "give s3://name"},
		{"A parameter would be ignored.", "s3://packages?region=eu", "", "", "give s3://name"},
		{"No name.", "s3://", "", "", "\"s3://\" is not a bucket: give s3://name"},
		{"A slash too few.", "s3:/rel", "", "", "\"s3:/rel\" is not a bucket: give s3://name or s3://name/prefix"},
		{"A slash too many.", "s3:///x", "", "", "\"s3:///x\" is not a bucket: give s3://name or s3://name/prefix"},
		{"A name that S3 rejects.", "s3://My_Packages", "", "", "is not a bucket name"},
		{"A port.", "s3://packages:80", "", "", "is not a bucket name"},
		{"A path traversal.", "s3://packages/a/../b", "", "", "is not a prefix"},
	} {
		name, prefix, err := ParseBucket(c.text)
		if c.problem != "" {
			require.ErrorContains(t, err, c.problem, c.reason)
			require.NotContains(t, c.problem, "secret")
			continue
		}
		require.NoError(t, err, c.reason)
		require.Equal(t, []string{c.name, c.prefix}, []string{name, prefix}, c.reason)
	}
}
