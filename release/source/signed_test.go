package source_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/source"
)

func TestSecretParameter(t *testing.T) {
	t.Parallel()
	for rawURL, want := range map[string]string{
		"https://b.s3.amazonaws.com/a.zip?X-Amz-Date=1&X-Amz-Signature=ab12": "x-amz-signature",
		"https://storage.googleapis.com/b/a.zip?X-Goog-Signature=ab12":       "x-goog-signature",
		"https://acc.blob.core.windows.net/c/a.zip?sv=2024&sig=ab%3D":        "sig",
		"https://b.oss-cn-hangzhou.aliyuncs.com/a.zip?Expires=1&Signature=x": "signature",
		"https://b.cos.ap-beijing.myqcloud.com/a.zip?q-signature=ab12":       "q-signature",
		"https://gitlab.example/a.zip?private_token=glpat":                   "private_token",
		"https://host/a.zip?x=1;TOKEN=abc":                                   "token",
		"https://host/a.zip?%74oken=abc":                                     "token",
		"https://host/a.zip?%zz=1&sig=abc":                                   "sig",
		"https://host/a.zip":                                                 "",
		"https://host/a.zip?version=1.2&download=1":                          "",
		"https://host/a.zip?token=":                                          "",
		"https://host/token=1/a.zip?signed=no#sig=x":                         "",
		"": "",
	} {
		require.Equal(t, want, source.SecretParameter(rawURL), rawURL)
	}
}
