package serving_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"slipway.io/slipway/release/serving"
)

func TestFencingToken_After(t *testing.T) {
	t.Parallel()
	order := []struct {
		reason string
		token  serving.FencingToken
	}{
		{"the zero token comes first", serving.FencingToken{}},
		{"the creation", serving.FencingToken{Generation: 1, Started: 100}},
		{"a recreation: another operation of that generation", serving.FencingToken{Generation: 1, Started: 200}},
		{"an update, whatever its time", serving.FencingToken{Generation: 2, Started: 150}},
		{"its rollback", serving.FencingToken{Generation: 2, Started: 150, Rollback: 1}},
		{"another operation of that generation", serving.FencingToken{Generation: 2, Started: 300}},
	}
	for i, a := range order {
		for j, b := range order {
			require.Equal(t, i > j, a.token.After(b.token), "%s, and %s", a.reason, b.reason)
		}
	}
}

func TestTokenOf_ParsesString(t *testing.T) {
	t.Parallel()
	object := func(text string) metav1.Object {
		return &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{serving.AnnotationToken: text}}}
	}
	rapid.Check(t, func(t *rapid.T) {
		token := serving.FencingToken{
			Generation: rapid.Int64Range(1, 1<<62).Draw(t, "generation"),
			Started:    rapid.Int64Range(0, 1<<62).Draw(t, "started"),
			Rollback:   rapid.IntRange(0, 1).Draw(t, "back"),
		}
		require.Equal(t, token, serving.TokenOf(object(token.String())))
	})
	for _, text := range []string{"", "7", "x.1.0", "1.9223372036854775808.0"} {
		require.Equal(t, serving.FencingToken{}, serving.TokenOf(object(text)), "%q", text)
	}
}
